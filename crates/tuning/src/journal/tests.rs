use super::*;

fn sample() -> Vec<u8> {
    let header = Header::new("b".into(), 7, "near".into(), 1);
    let intent = Intent {
        id: 0,
        key: "net.ipv4.tcp_rmem".parse().expect("known"),
        from: "4096 131072 6291456".into(),
        to: "4096 131072 67108864".into(),
        is_side_effect: false,
        owner: Owner::Host,
        why: "the window binds".into(),
        source: "ip-sysctl.rst".into(),
    };
    let mut bytes = encode(&header);
    bytes.extend(encode(&Record::Intent(intent.clone())));
    bytes.extend(encode(&Record::Done { id: 0, now: "4096 131072 67108864".into() }));
    bytes.extend(encode(&Record::Intent(Intent {
        id: 1,
        key: "eth0/mtu".parse().expect("known"),
        from: "1500".into(),
        to: "9000".into(),
        ..intent
    })));
    bytes
}

#[test]
fn it_is_read_as_it_was_written() {
    let bytes = sample();
    let decoded = decode(&bytes).expect("whole");
    let journal = decoded.journal.expect("a header");
    assert_eq!(decoded.whole_bytes, bytes.len());
    assert_eq!(journal.entries.len(), 2);
    assert_eq!(journal.entries[0].state, State::Done("4096 131072 67108864".into()));
    assert_eq!(journal.entries[1].state, State::Intended);
}

#[test]
fn cut_anywhere_it_is_still_a_journal() {
    let bytes = sample();
    for length in 0..bytes.len() {
        let decoded = decode(&bytes[..length]).expect("a cut is no damage");
        assert!(decoded.whole_bytes <= length);
        let entries = decoded.journal.map_or(0, |journal| journal.entries.len());
        assert!(entries <= 2);
    }
}

#[test]
fn damage_is_named_by_its_line() {
    let text = String::from_utf8(sample()).expect("UTF-8");
    for (from, to, line) in [
        ("\"done\"", "\"dome\"", 3),
        ("\"id\":0,\"now\"", "\"id\":9,\"now\"", 3),
        ("net.ipv4.tcp_rmem", "kernel.core_pattern", 2),
        ("\"to\":\"9000\"", "\"to\":\"-1\"", 4),
        ("{\"journal\"", "[\"journal\"", 1),
    ] {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text);
        match decode(damaged.as_bytes()) {
            Err(JournalError::Malformed { line: named, .. }) => assert_eq!(named, line, "{to}"),
            other => panic!("{to}: {other:?}"),
        }
    }
    assert!(matches!(decode(b"garbage"), Err(JournalError::Malformed { line: 1, .. })));
    assert_eq!(
        decode(text.replacen("\"version\":1", "\"version\":2", 1).as_bytes()),
        Err(JournalError::Version(2))
    );
}

#[test]
fn any_bytes_are_a_journal_or_not() {
    let whole = sample();
    bolero::check!().with_type::<(Vec<u8>, u16, bool)>().for_each(|(bytes, at, splice)| {
        let mut text = if *splice { whole.clone() } else { Vec::new() };
        let at = usize::from(*at).min(text.len());
        text.splice(at..at, bytes.iter().copied());
        if let Ok(decoded) = decode(&text) {
            assert!(decoded.whole_bytes <= text.len());
            // What was read can be written and read again.
            if let Some(journal) = decoded.journal {
                for entry in &journal.entries {
                    let line = encode(&Record::Intent(entry.intent.clone()));
                    assert!(serde_json::from_slice::<Record>(&line).is_ok());
                }
            }
        }
    });
}
