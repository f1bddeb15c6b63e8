use super::*;

#[test]
fn every_published_setting_is_there_and_judged() {
    let counts = [("clearstream-2011", 13), ("cumulus-2018", 18), ("esnet-2025", 7)];
    for (name, count) in counts {
        let profile = own(name).expect("it comes with the program");
        assert_eq!(profile.settings.len(), count, "{name}");
        assert!(!profile.title.is_empty() && !profile.source.is_empty());
        for (key, value) in &profile.settings {
            let (_, text) = judge(key, value);
            assert!(!text.starts_with("not among"), "{name}: {key}");
        }
    }
    assert_eq!(names().len(), counts.len());
}

#[test]
fn what_is_gone_or_harmful_is_called_so() {
    for (key, value, advice) in [
        ("net.ipv4.tcp_tw_recycle", "1", Advice::Removed),
        ("net.ipv4.tcp_low_latency", "1", Advice::Idle),
        ("net.ipv4.tcp_timestamps", "0", Advice::Harmful),
        ("net.ipv4.tcp_sack", "0", Advice::Harmful),
    ] {
        assert_eq!(judge(key, value).0, advice, "{key}");
    }
    assert_ne!(judge("net.ipv4.tcp_sack", "1").0, Advice::Harmful);
}

#[test]
fn any_text_is_a_profile_or_not() {
    assert_eq!(
        read("x", "# title: t\nnet.a = 1\nnonsense"),
        Err(ProfileError::Malformed { line: 3, text: "nonsense".into() })
    );
    bolero::check!().with_type::<String>().for_each(|text| {
        if let Ok(profile) = read("any", text) {
            assert!(profile.settings.len() <= SETTINGS_MAX);
            assert!(profile.settings.iter().all(|(key, _)| !key.is_empty()));
        }
    });
}
