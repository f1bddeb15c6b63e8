use super::*;

fn run(line: &str) -> Options {
    match request(line) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn request(line: &str) -> Result<Request, OptionsError> {
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    parse(&words)
}

#[test]
fn defaults_are_iperf3s() {
    let options = run("-c host");
    assert_eq!(options.role, Role::Client { host: "host".into() });
    assert_eq!((options.port, options.interval_s, options.format), (5201, 1.0, 'a'));
    let client = &options.client;
    assert_eq!((client.duration_s, client.streams, client.block_bytes), (10, 1, 131_072));
    assert_eq!(client.rate_bits_per_s, 0);
    let udp = run("-c host -u").client;
    assert_eq!((udp.rate_bits_per_s, udp.block_bytes), (1_048_576, 0));
    assert_eq!(run("-c h -u -b 0").client.rate_bits_per_s, 0);
}

#[test]
fn a_long_command_line() {
    let options = run(
        "-c 10.0.0.1%eth1 -p 5202 -fM -i .5 -t20 -P4 -R -w 4M -l 1M -C bbr -M1400 -N4 --dscp af41 -ZO2 -A 1,3 \
         -T x --fq-rate 10G --cport 4000 --bandwidth 1g/20 --logfile f --timestamps=%s, --get-server-output",
    );
    let client = &options.client;
    assert_eq!(options.bind_device.as_deref(), Some("eth1"));
    assert_eq!((options.port, options.format, options.interval_s), (5202, 'M', 0.5));
    assert_eq!((client.duration_s, client.streams, client.window_bytes), (20, 4, 4 << 20));
    assert_eq!((client.block_bytes, client.mss_bytes, client.omit_s), (1 << 20, 1400, 2));
    assert_eq!((options.core, options.server_core), (Some(1), Some(3)));
    assert_eq!((client.type_of_service, client.burst_count), (0x88, 20));
    assert_eq!((client.rate_bits_per_s, client.pacing_bits_per_s), (1_000_000_000, 10_000_000_000));
    assert_eq!((options.family, options.timestamps.as_deref()), (Family::V4, Some("%s,")));
    assert!(client.nodelay && client.zerocopy && client.reverse && client.get_server_output);
}

#[test]
fn the_servers_options() {
    let options =
        run("-s -1D --server-bitrate-limit 1G/10 --idle-timeout 60 --server-max-duration 30");
    let server = &options.server;
    assert!(server.one_off && server.daemon);
    assert_eq!((server.rate_limit_bits_per_s, server.rate_limit_interval_s), (1_000_000_000, 10.0));
    assert_eq!((server.idle_timeout_s, server.max_duration_s), (60, 30));
}

#[test]
fn type_of_service_in_every_spelling() {
    for text in ["-S 52", "-S 064", "-S 0x34", "--dscp 13", "--dscp 0xd"] {
        assert_eq!(run(&format!("-c h {text}")).client.type_of_service, 52, "{text}");
    }
    for (name, value) in [("EF", 0xb8), ("cs6", 0xc0), ("af11", 0x28), ("lowdelay", 0x10)] {
        assert_eq!(run(&format!("-c h --dscp {name}")).client.type_of_service, value, "{name}");
    }
}

#[test]
fn refuses_in_iperf3s_words() {
    for (line, error) in [
        ("-t 1", ParameterError::NoRole),
        ("-s -c h", ParameterError::BothRoles),
        ("-s -t 1", ParameterError::ClientOnly),
        ("-c h -D", ParameterError::ServerOnly),
        ("-c h -t 86401", ParameterError::Duration),
        ("-c h -P 129", ParameterError::Streams),
        ("-c h -P 0", ParameterError::NoStreams),
        ("-c h -l 2M", ParameterError::BlockSize),
        ("-c h -u -l 15", ParameterError::DatagramSize),
        ("-c h -w 1G", ParameterError::BufferSize),
        ("-c h -i 0.05", ParameterError::Interval),
        ("-c h -M 32768", ParameterError::Mss),
        ("-c h -O 601", ParameterError::Omit),
        ("-c h -b 1M/0", ParameterError::Burst),
        ("-c h -b 1M/", ParameterError::Burst),
        ("-c h -t 1 -n 1M", ParameterError::EndConditions),
        ("-c h -n 1 -k 1", ParameterError::EndConditions),
        ("-c h -S 256", ParameterError::TypeOfService),
        ("-c h --dscp 64", ParameterError::TypeOfService),
        ("-c h --dscp af51", ParameterError::TypeOfService),
        ("-c h -f x", ParameterError::Format),
        ("-c h -R --bidir", ParameterError::ReverseAndBidirectional),
        ("-c h --bidir -R", ParameterError::ReverseAndBidirectional),
        ("-c h -p 0", ParameterError::Port),
        ("-c h -p 65536", ParameterError::Port),
        ("-c h --rcv-timeout 1000", ParameterError::ReceiveTimeoutWhenSending),
        ("-s --rcv-timeout 99", ParameterError::ReceiveTimeout),
        ("-s --idle-timeout 0", ParameterError::IdleTimeout),
        ("-s --server-bitrate-limit 1M/100", ParameterError::RateInterval),
        ("-c h --cntl-ka=10/5/2", ParameterError::KeepAlive),
        ("-c h -A 2000", ParameterError::Affinity),
        ("-c h -L 0", ParameterError::FlowLabel),
        ("-c h -b 10x", ParameterError::Unit("10x".into())),
        ("-c h -n ten", ParameterError::Unit("ten".into())),
        ("-c h --sctp", ParameterError::Sctp),
        ("-c h --username me", ParameterError::Authentication("--username")),
        ("-c h -F f -u", ParameterError::FileOverUdp),
        ("-c h -F f", ParameterError::File),
    ] {
        assert_eq!(request(line), Err(error.into()), "{line}");
    }
    assert_eq!(
        request("-c h -t 1 -n 1").unwrap_err().to_string(),
        "parameter error - only one test end condition (-t, -n, -k) may be specified"
    );
    assert_eq!(request("--nonsense").unwrap_err().to_string(), "unrecognized option '--nonsense'");
}

#[test]
fn help_and_version_win_over_what_follows() {
    assert_eq!(request("-h --nstreams 3"), Ok(Request::Help));
    assert_eq!(request("-c h --version"), Ok(Request::Version));
}

#[test]
fn every_option_is_in_the_help() {
    let help = help();
    let hidden = ["linux-congestion", "bandwidth", "no-fq-socket-pacing", "nstreams", "xbind"];
    let refused = ["rsa", "users", "skew", "padding"];
    for entry in &table::ENTRIES {
        let long = entry.long.expect("every option has a long name");
        let absent = refused.iter().any(|word| long.contains(word)) || long == "file";
        if !hidden.contains(&long) && !absent {
            assert!(help.contains(&format!("--{long}")), "{long}");
        }
    }
}

#[test]
fn any_words_make_options_or_an_error() {
    bolero::check!().with_type::<Vec<(u8, String)>>().for_each(|words| {
        let words: Vec<_> = words
            .iter()
            .flat_map(|(which, value)| {
                let entry = &table::ENTRIES[usize::from(*which) % table::ENTRIES.len()];
                [format!("--{}", entry.long.unwrap_or_default()), value.clone()]
            })
            .collect();
        if let Ok(Request::Run(options)) = parse(&words) {
            assert!(options.client.block_bytes <= 1 << 20);
            assert!((1..=128).contains(&options.client.streams));
        }
    });
}
