use super::*;

#[test]
fn any_bytes_are_a_request_or_an_error() {
    bolero::check!().for_each(|bytes: &[u8]| {
        if let Ok(ask) = Request::decode(bytes) {
            assert_eq!(Request::decode(&Request::encode(ask.clone())).unwrap(), ask);
        }
        if let Ok(answer) = Answer::decode(bytes) {
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
        }
    });
}

/// Requests that are nearly right: the fuzzer's bytes replace parts of real ones.
#[test]
fn near_misses_never_panic() {
    let real = [
        Request::encode(Ask::AttachPort {
            port: "vale0:a".parse().unwrap(),
            shape: Shape::default(),
        }),
        Request::encode(Ask::List { after: Some("x".into()) }),
        Request::encode(Ask::AddPipes {
            group: "g".parse().unwrap(),
            pipes: 2,
            shape: Shape::default(),
        }),
    ];
    bolero::check!().with_type::<(u8, u16, Vec<u8>)>().for_each(|(which, at, patch)| {
        let mut bytes = real[usize::from(*which) % real.len()].clone();
        let at = usize::from(*at) % bytes.len();
        let end = (at + patch.len()).min(bytes.len());
        bytes.splice(at..end, patch.iter().copied());
        if let Ok(Ask::AttachPort { shape, .. }) = Request::decode(&bytes) {
            assert!(!shape.is_possible() || shape.slots <= SLOTS_MAX);
        }
    });
}

#[test]
fn requests_read_as_the_document_shows_them() {
    let text = r#"{"version":1,"ask":{"attach_port":{"port":"vale0:a"}}}"#;
    let Ask::AttachPort { port, shape } = Request::decode(text.as_bytes()).unwrap() else {
        panic!()
    };
    assert_eq!((port.to_string().as_str(), shape), ("vale0:a", Shape::default()));
    let text = r#"{"version":1,"ask":{"list":{}}}"#;
    assert_eq!(Request::decode(text.as_bytes()).unwrap(), Ask::List { after: None });
}

#[test]
fn other_versions_are_told_apart_from_nonsense() {
    let later = r#"{"version":2,"ask":{"dance":{}}}"#;
    assert!(matches!(Request::decode(later.as_bytes()), Err(MessageError::Version { theirs: 2 })));
    let unknown = r#"{"version":1,"ask":{"dance":{}}}"#;
    assert!(matches!(Request::decode(unknown.as_bytes()), Err(MessageError::Malformed(_))));
    let extra = r#"{"version":1,"ask":{"list":{}},"and":1}"#;
    assert!(matches!(Request::decode(extra.as_bytes()), Err(MessageError::Malformed(_))));
    let long = vec![b' '; MESSAGE_BYTES_MAX + 1];
    assert!(matches!(Request::decode(&long), Err(MessageError::TooLong)));
}

#[test]
fn clients_from_before_there_were_codes_read_a_refusal() {
    /// As those clients have it.
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Before {
        Refused {
            why: String,
            #[serde(default)]
            is_senseless: bool,
        },
    }
    for code in RefusalCode::ALL {
        let before: Before = serde_json::from_slice(&Answer::refused(code, "no").encode()).unwrap();
        let is_senseless = code == RefusalCode::Invalid;
        assert_eq!(before, Before::Refused { why: "no".into(), is_senseless });
    }
}

#[test]
fn the_document_lists_every_code() {
    let document = include_str!("../../../../docs/attachment.md");
    let table = document.split("## Refusals").nth(1).unwrap().split("\n## ").next().unwrap();
    let listed: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let name = |code: RefusalCode| serde_json::to_value(code).unwrap().as_str().unwrap().to_owned();
    let codes: Vec<String> = RefusalCode::ALL.into_iter().map(name).collect();
    assert_eq!(listed, codes);
}
