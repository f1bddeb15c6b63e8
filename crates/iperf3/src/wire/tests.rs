use super::*;

#[test]
fn parameters_come_back_as_they_were_sent() {
    let asked = Parameters {
        transport: Transport::Udp,
        duration_s: 10,
        streams: 4,
        reverse: true,
        block_bytes: 1448,
        rate_bits_per_s: 1_048_576,
        gsro: true,
        title: Some("a \"title\"".into()),
        skip_rx_copy: true,
        client_version: Some("3.21".into()),
        ..Parameters::default()
    };
    let bytes = encode_message(&asked.message());
    let header = [bytes[0], bytes[1], bytes[2], bytes[3]];
    assert_eq!(message_length(header, PARAMETERS_BYTES_MAX).unwrap(), bytes.len() - 4);
    assert_eq!(Parameters::parse(&bytes[4..]).unwrap(), asked);
}

#[test]
fn reads_what_a_3_12_client_sends() {
    let sent = br#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":2,"bidirectional":true,
        "len":131072,"bandwidth":1e9,"pacing_timer":1000,"client_version":"3.12"}"#;
    let asked = Parameters::parse(sent).unwrap();
    assert_eq!((asked.transport, asked.streams, asked.duration_s), (Transport::Tcp, 2, 10));
    assert!(asked.bidirectional && !asked.reverse);
    assert_eq!(asked.rate_bits_per_s, 1_000_000_000);
}

#[test]
fn results_without_what_old_servers_lack_are_read() {
    let sent = br#"{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":-1,
        "streams":[{"id":1,"bytes":12345678901,"retransmits":-1,"jitter":0,"errors":0,"packets":0}]}"#;
    let results = EndResults::parse(sent).unwrap();
    assert_eq!(results.streams[0].bytes, 12_345_678_901);
    assert_eq!(results.streams[0].duration_s, None);
    assert_eq!(results.sender_has_retransmits, -1);
    let lacking = br#"{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"streams":[]}"#;
    assert!(matches!(
        EndResults::parse(lacking),
        Err(WireError::Missing("sender_has_retransmits"))
    ));
}

#[test]
fn results_come_back_as_they_were_sent() {
    let results = EndResults {
        cpu: CpuPercent { total: 98.4, user: 0.4, system: 98.0 },
        sender_has_retransmits: 1,
        congestion_used: Some("cubic".into()),
        server_output: Some(ServerOutput::Text("line\n".into())),
        streams: vec![StreamResult {
            id: 3,
            bytes: 7,
            retransmits: 2,
            omitted_errors: Some(0),
            packets: 5,
            omitted_packets: Some(1),
            duration_s: Some(1.25),
            ..StreamResult::default()
        }],
    };
    let bytes = encode_message(&results.message());
    assert_eq!(EndResults::parse(&bytes[4..]).unwrap(), results);
}

#[test]
fn lengths_are_bounded() {
    for header in [[0; 4], [0x80, 0, 0, 0], [0, 1, 0, 1]] {
        assert!(message_length(header, PARAMETERS_BYTES_MAX).is_err(), "{header:?}");
    }
}

#[test]
fn states_are_their_bytes() {
    assert_eq!(State::from_byte(0xff), Some(State::AccessDenied));
    assert_eq!(State::from_byte(16), Some(State::IperfDone));
    for byte in 0..=u8::MAX {
        assert!(State::from_byte(byte).is_none_or(|state| state.byte() == byte));
    }
    assert_eq!(encode_server_error(27, 0), [0xfe, 0, 0, 0, 27, 0, 0, 0, 0]);
}

#[test]
fn any_bytes_are_read_or_refused() {
    bolero::check!().for_each(|bytes: &[u8]| {
        if let Ok(asked) = Parameters::parse(bytes) {
            Parameters::parse(asked.message().compact().as_bytes()).expect("our own message");
        }
        if let Ok(results) = EndResults::parse(bytes) {
            assert!(results.streams.len() <= bytes.len());
        }
    });
}

#[test]
fn any_numbers_in_a_message_are_held_in_range() {
    bolero::check!().with_type::<(f64, i64, u64)>().for_each(|(real, whole, count)| {
        let text = format!(
            r#"{{"tcp":true,"time":{},"num":{whole},"len":{count},"parallel":{}}}"#,
            Json::Real(*real).compact(),
            Json::Real(*real).compact(),
        );
        Parameters::parse(text.as_bytes()).expect("an object of numbers");
    });
}
