use super::*;

/// What marks packets of one Ethernet address that come by one interface.
fn marking() -> FilterTable {
    let mut interface = b"ib0".to_vec();
    interface.resize(16, 0);
    let expressions = vec![
        Expression::LoadMeta(MetaKey::InputName),
        Expression::Compare(Comparison::Equal, interface),
        Expression::LoadMeta(MetaKey::InputType),
        Expression::Compare(Comparison::Equal, 1_u16.to_ne_bytes().to_vec()),
        Expression::LoadPayload { base: PayloadBase::Link, offset_bytes: 6, length_bytes: 6 },
        Expression::Compare(Comparison::Equal, vec![2, 0, 0, 0, 0, 1]),
        Expression::Load(1_u32.to_ne_bytes().to_vec()),
        Expression::SetMeta(MetaKey::Mark),
    ];
    let hook = FilterHook {
        kind: "filter".to_owned(),
        number: FilterHook::BEFORE_ROUTING,
        priority: -150,
        policy: FilterHook::ACCEPT,
    };
    let chain = FilterChain {
        name: "follow".to_owned(),
        hook: Some(hook),
        rules: vec![FilterRule::with_comment(expressions, "g1")],
        other: Vec::new(),
    };
    FilterTable {
        family: Family::V4,
        name: "clearstream-77".to_owned(),
        chains: vec![chain],
        maps: Vec::new(),
        other: Vec::new(),
    }
}

/// What `nft` 1.0.6 (Debian 12) sends for the same rule, from `nft --debug=mnl`, little-endian.
#[cfg(target_endian = "little")]
const RULE_OF_NFT: &str = "\
    02000000 1300 0100 636c6561727374 7265616d2d3737 00 00 0b00 0200 666f6c6c6f77 00 00 6401 0480 \
    2400 0180 0900 0100 6d65746100 000000 1400 0280 0800 0200 00000006 0800 0100 00000001 \
    3800 0180 0800 0100 636d7000 2c00 0280 0800 0100 00000001 0800 0200 00000000 \
      1800 0380 1400 0100 69623000 00000000 00000000 00000000 \
    2400 0180 0900 0100 6d65746100 000000 1400 0280 0800 0200 00000008 0800 0100 00000001 \
    2c00 0180 0800 0100 636d7000 2000 0280 0800 0100 00000001 0800 0200 00000000 \
      0c00 0380 0600 0100 0100 0000 \
    3400 0180 0c00 0100 7061796c6f616400 2400 0280 0800 0100 00000001 0800 0200 00000000 \
      0800 0300 00000006 0800 0400 00000006 \
    3000 0180 0800 0100 636d7000 2400 0280 0800 0100 00000001 0800 0200 00000000 \
      1000 0380 0a00 0100 020000000001 0000 \
    2c00 0180 0e00 0100 696d6d65646961746500 0000 1800 0280 0800 0100 00000001 \
      0c00 0280 0800 0100 01000000 \
    2400 0180 0900 0100 6d65746100 000000 1400 0280 0800 0200 00000003 0800 0300 00000001 \
    0900 0700 0003673100 000000";

#[cfg(target_endian = "little")]
fn bytes_of_nft() -> Vec<u8> {
    let digits: Vec<u8> = RULE_OF_NFT.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
#[cfg(target_endian = "little")]
fn a_rule_is_read_from_the_bytes_that_nft_sends_and_is_as_long() {
    let bytes = bytes_of_nft();
    let table = marking();
    let ([name, chain], rule) = FilterRule::parse(&bytes[HEADER_BYTES..]).unwrap();
    assert_eq!((name.as_str(), chain.as_str()), ("clearstream-77", "follow"));
    assert_eq!(rule, table.chains[0].rules[0]);
    assert_eq!(rule.comment().as_deref(), Some("g1"));
    let ours = rule.message(&table, "follow").unwrap();
    assert_eq!((ours.kind, ours.body.len()), (2566, bytes.len()));
    // The order of a step's attributes is free; ours for `meta` is another than that of nft.
    let mut sorted = [ours.body, bytes];
    sorted.iter_mut().for_each(|body| body.sort_unstable());
    assert_eq!(sorted[0], sorted[1]);
}

#[test]
fn a_table_is_the_same_after_a_journal_and_says_what_it_holds() {
    let table = marking();
    assert_eq!(FilterTable::decode(&table.encode().unwrap()), Ok(table.clone()));
    let messages = table.create().unwrap();
    let kinds: Vec<u16> = messages.iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [2560, 2563, 2566]);
    let batch = transaction(7, messages);
    assert_eq!((batch[0].kind, batch[4].kind), (16, 17));
    assert_eq!(batch[0].body, [0, 0, 0, 10, 8, 0, 1, 0, 0, 0, 0, 7]);
    assert_eq!(batch[4].body, [0, 0, 0, 10]);
}

/// A table with a map that its rule fills.
fn remembering() -> FilterTable {
    let mut table = marking();
    table.maps.push(FilterMap {
        name: "asked".to_owned(),
        key_type: 0x734d,
        key_bytes: 12,
        data_type: 19,
        data_bytes: 4,
        timeout_ms: 180_000,
        entries_count_max: 65_536,
    });
    table.chains[0].rules[0].expressions.extend([
        Expression::LoadMeta(MetaKey::Protocol),
        Expression::Compare(Comparison::Equal, vec![17]),
        Expression::LoadPayloadAt {
            register: 9,
            base: PayloadBase::Transport,
            offset_bytes: 0,
            length_bytes: 2,
        },
        Expression::LoadMetaAt { register: 2, key: MetaKey::Mark },
        Expression::Remember { map: "asked".to_owned(), register: 2 },
        Expression::LookUp { map: "asked".to_owned() },
        Expression::Forget { map: "asked".to_owned(), register: 2 },
    ]);
    table
}

#[test]
fn a_map_is_made_before_the_rules_that_fill_it_and_is_the_same_after_a_journal() {
    let table = remembering();
    assert_eq!(FilterTable::decode(&table.encode().unwrap()), Ok(table.clone()));
    let kinds: Vec<u16> = table.create().unwrap().iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [2560, 2569, 2563, 2566]);
}

/// What the kernel adds when it lists them: time limits of their own, flags.
#[test]
fn steps_with_maps_are_the_same_as_the_kernel_lists_them() {
    for (step, name) in [
        (Expression::Remember { map: "asked".to_owned(), register: 2 }, "dynset"),
        (Expression::LookUp { map: "asked".to_owned() }, "lookup"),
    ] {
        let listed = |flags: u32, timeout: u64| {
            let mut encoder = Encoder::default();
            encoder.text(1, name);
            encoder.nested(2, |data| {
                data.text(1, "asked");
                if name == "dynset" {
                    data.attribute(3, &1_u32.to_be_bytes());
                    data.attribute(4, &1_u32.to_be_bytes());
                    data.attribute(5, &2_u32.to_be_bytes());
                    data.attribute(6, &timeout.to_be_bytes());
                    data.attribute(9, &flags.to_be_bytes());
                } else {
                    data.attribute(2, &1_u32.to_be_bytes());
                    data.attribute(3, &1_u32.to_be_bytes());
                    data.attribute(5, &flags.to_be_bytes());
                }
            });
            Expression::parse(&encoder.finish().unwrap()).unwrap()
        };
        assert_eq!(listed(0, 0), step);
        assert!(matches!(listed(1, 0), Expression::Other(_)), "another meaning");
        if name == "dynset" {
            assert!(matches!(listed(0, 1000), Expression::Other(_)), "another meaning");
        }
    }
}

#[test]
fn tables_of_others_are_left_out_and_everything_finds_its_table() {
    let (ours, mut theirs) = (remembering(), remembering());
    theirs.name = "theirs".to_owned();
    let bodies = |kind: u16| -> Vec<Vec<u8>> {
        let all = [&theirs, &ours].map(|table| table.create().unwrap());
        let of_kind = all.into_iter().flatten().filter(|message| message.kind == kind);
        of_kind.map(|message| message.body).collect()
    };
    let lists = [bodies(2560), bodies(2563), bodies(2566), bodies(2569)];
    let lists = lists.each_ref().map(Vec::as_slice);
    let found = FilterTable::assemble(lists, |name| name.starts_with("clearstream-"));
    assert_eq!(found, Ok(vec![ours]));
}

#[test]
fn steps_that_are_unknown_are_kept_as_they_were() {
    let mut table = marking();
    let mut encoder = Encoder::default();
    encoder.text(1, "counter");
    encoder.nested(2, |data| data.attribute(1, &5_u64.to_be_bytes()));
    let element = encoder.finish().unwrap();
    let counter = Expression::parse(&element).unwrap();
    assert!(matches!(&counter, Expression::Other(all) if all.len() == 2), "{counter:?}");
    table.chains[0].rules[0].expressions.push(counter);
    assert_eq!(FilterTable::decode(&table.encode().unwrap()), Ok(table));
}

#[test]
fn any_bytes_are_a_table_or_refused() {
    bolero::check!().for_each(|bytes: &[u8]| {
        FilterTable::decode(bytes).ok();
        Expression::parse(bytes).ok();
        generation_of(bytes).ok();
        let one = [bytes.to_vec()];
        FilterTable::assemble([&one, &[], &[], &[]], |_| true).ok();
        FilterTable::assemble([&[], &one, &one, &one], |_| true).ok();
    });
}
