use super::*;

/// Bytes of a description: types as words, names joined by NULs.
fn description(types: &[u32], names: &[&str]) -> Vec<u8> {
    let strings = names.iter().fold(vec![0_u8], |mut all, name| {
        all.extend(name.bytes().chain([0]));
        all
    });
    let type_bytes = u32::try_from(types.len() * 4).unwrap();
    let head = [0x0001_eb9f, 24, 0, type_bytes, type_bytes, u32::try_from(strings.len()).unwrap()];
    head.iter().chain(types).flat_map(|word| word.to_ne_bytes()).chain(strings).collect()
}

/// `struct outer { int a; struct { int b : 3; }; inner_t c[4]; }` with `typedef const int inner_t`.
fn outer() -> Vec<u8> {
    let types = [
        [1, 0x0100_0000, 4, 0x0100_0020].as_slice(), // 1: int
        &[0, 0x8400_0001, 4, 5, 1, (3 << 24) | 2],   // 2: struct { int b : 3 at bit 2 }
        &[0, 0x0a00_0000, 1],                        // 3: const int
        &[7, 0x0800_0000, 3],                        // 4: typedef inner_t
        &[0, 0x0300_0000, 0, 4, 1, 4],               // 5: inner_t[4]
        &[15, 0x0400_0003, 24, 23, 1, 0, 0, 2, 32, 25, 5, 64], // 6: outer
    ]
    .concat();
    description(&types, &["int", "b", "inner_t", "outer", "-", "a", "c"])
}

#[test]
fn fields_by_name() {
    let bytes = outer();
    let btf = Btf::parse(&bytes).unwrap();
    let outer = btf.structure("outer").unwrap();
    assert_eq!(outer, 6);
    assert_eq!(btf.field(outer, "a").unwrap(), Field { type_id: 1, offset_bits: 0, width_bits: 0 });
    let inside = btf.field(outer, "b").unwrap();
    assert_eq!(inside, Field { type_id: 1, offset_bits: 34, width_bits: 3 });
    let array = btf.field(outer, "c").unwrap();
    assert_eq!((array.offset_bits, btf.size_bytes(array.type_id)), (64, Some(16)));
    assert_eq!(btf.field(outer, "d"), None);
    assert_eq!(btf.structure("inner_t"), None, "a typedef is no structure");
    assert_eq!(btf.name(0), None);
}

#[test]
fn a_circle_of_types_ends() {
    let types = [0, 0x0800_0000, 2, 0, 0x0800_0000, 1];
    let bytes = description(&types, &[]);
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.plain(1), None);
    assert_eq!(btf.size_bytes(1), None);
    // An unnamed structure that holds itself.
    let types = [0, 0x0400_0001, 4, 0, 1, 0];
    let bytes = description(&types, &[]);
    assert_eq!(Btf::parse(&bytes).unwrap().field(1, "x"), None);
}

#[test]
fn what_is_no_description() {
    assert_eq!(Btf::parse(&[]).unwrap_err(), BtfError("it begins otherwise"));
    let whole = outer();
    for cut in 24..whole.len() {
        assert!(Btf::parse(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let bytes = description(&[0, 0x1f00_0000, 0], &[]);
    assert_eq!(Btf::parse(&bytes).unwrap_err(), BtfError("an unknown type"));
}

#[test]
fn any_bytes_are_types_or_an_error() {
    let whole = outer();
    bolero::check!().with_type::<(Vec<u8>, u8)>().for_each(|(noise, at)| {
        let mut bent = whole.clone();
        for (offset, byte) in noise.iter().enumerate() {
            if let Some(place) = bent.get_mut(usize::from(*at) + offset) {
                *place ^= byte;
            }
        }
        for bytes in [noise, &bent] {
            let Ok(btf) = Btf::parse(bytes) else { continue };
            for id in 0..20 {
                let _answer = (btf.name(id), btf.size_bytes(id), btf.field(id, "a"));
            }
        }
    });
}
