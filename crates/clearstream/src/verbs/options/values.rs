//! Parses values of options.

use std::time::Duration;

use units::UnitError;

use crate::exit::VerbError;

/// Bytes of a request and of its response, of `--rr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) request_bytes: u32,
    pub(super) response_bytes: u32,
}

/// A list of core numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<u32>);

/// Most cores in a list.
const CORES_MAX: usize = 1024;

pub(crate) fn duration(text: &str) -> Result<Duration, UnitError> {
    units::parse_duration(text)
}

pub(super) fn byte_size(text: &str) -> Result<u64, String> {
    match units::parse_byte_size(text) {
        Ok(0) => Err("at least 1 byte".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses a name or an address without a port, for which there is another option.
pub(super) fn host(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address,
        // More than one colon: an IPv6 address.
        None if host.contains(':') => return Ok(text.to_owned()),
        None => host,
    };
    match port.parse::<u16>() {
        Ok(port) => Err(format!("give the port with -p: {host} -p {port}")),
        Err(_no_port) => Ok(text.to_owned()),
    }
}

/// Parses a rate in bit/s; bare numbers, as iperf3 has them, only from 10 kbit/s on: `900` is meant as 900 Mbit/s.
pub(super) fn bit_rate(text: &str) -> Result<u64, String> {
    const BARE_MIN: f64 = 10_000.0;
    let number = text.trim();
    if number.parse::<f64>().is_ok_and(|rate| rate > 0.0 && rate < BARE_MIN) {
        return Err(format!(
            "'{number}' has no unit; write for example {number}M, or {number} bit/s"
        ));
    }
    units::parse_bit_rate(text).map_err(|error| error.to_string())
}

/// Parses a count with iperf3's binary suffixes: `1000`, `64K`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    byte_size(text)
}

pub(super) fn sizes(text: &str) -> Result<Sizes, String> {
    let (request, response) = text.split_once(',').unwrap_or((text, text));
    let bytes = |text| {
        let bytes = byte_size(text)?;
        u32::try_from(bytes).map_err(|_beyond| format!("{bytes} bytes are too many"))
    };
    // A single number is the size of both request and response.
    Ok(Sizes { request_bytes: bytes(request)?, response_bytes: bytes(response)? })
}

/// Parses a list of cores: `0,2-5`.
pub(crate) fn cores(text: &str) -> Result<Cores, String> {
    let wrong = || format!("'{text}' is not a list of cores; write for example 0,2-5");
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_not_digits| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last as usize >= CORES_MAX {
            return Err(wrong());
        }
        list.extend(first..=last);
        if list.len() > CORES_MAX {
            return Err(wrong());
        }
    }
    Ok(Cores(list))
}

/// Refuses cores on which this process may not run.
pub(crate) fn check_cores(list: &[u32]) -> Result<(), VerbError> {
    sys::thread::first_unusable(list).map_or(Ok(()), |core| {
        let text = format!("core {core}: there is no such core, or this process may not run on it");
        Err(VerbError::usage(text))
    })
}

pub(super) fn congestion_control(text: &str) -> Result<String, String> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..16).contains(&text.len()) && text.bytes().all(known) {
        Ok(text.to_owned())
    } else {
        Err("a name as in net.ipv4.tcp_available_congestion_control".to_owned())
    }
}

/// Parses a DSCP: a number, or a name of RFC 2474, RFC 2597, RFC 3246 or RFC 8622.
pub(super) fn dscp(text: &str) -> Result<u8, String> {
    let text = text.to_ascii_lowercase();
    let digits = |rest: &str| rest.parse::<u8>().ok();
    let named = match text.as_str() {
        "ef" => Some(46),
        "le" => Some(1),
        "va" => Some(44),
        _ => text.strip_prefix("cs").and_then(digits).filter(|class| *class < 8).map(|c| c * 8),
    };
    let assured = text.strip_prefix("af").and_then(digits).and_then(|number| {
        let (class, drop) = (number / 10, number % 10);
        ((1..=4).contains(&class) && (1..=3).contains(&drop)).then_some(class * 8 + drop * 2)
    });
    named
        .or(assured)
        .or_else(|| digits(&text).filter(|value| *value < 64))
        .ok_or_else(|| "0 to 63, or ef, le, va, cs0 to cs7, af11 to af43".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists() {
        assert_eq!(cores("0"), Ok(Cores(vec![0])));
        assert_eq!(cores("0,2-5"), Ok(Cores(vec![0, 2, 3, 4, 5])));
        for text in ["", "a", "5-2", "0,", "-1", "0-4294967295"] {
            assert!(cores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_behind_a_host_is_named_as_one() {
        for text in ["127.0.0.1:5201", "geneva:5201", "[::1]:5201"] {
            assert!(host(text).expect_err(text).contains("-p 5201"), "{text}");
        }
        for text in ["geneva", "::1", "fe80::1%eth0", "2001:db8::5201", "10.0.0.1", "a:b"] {
            assert_eq!(host(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_rate_without_a_unit_is_refused_where_nobody_means_bits_per_second() {
        let told = bit_rate("900").expect_err("a bare number");
        assert_eq!(told, "'900' has no unit; write for example 900M, or 900 bit/s");
        for (text, bits_per_s) in
            [("900M", 900_000_000), ("900 bit/s", 900), ("1000000", 1_000_000), ("0", 0)]
        {
            assert_eq!(bit_rate(text), Ok(bits_per_s), "{text}");
        }
    }

    #[test]
    fn code_points() {
        for (text, value) in [("0", 0), ("63", 63), ("EF", 46), ("af41", 34), ("cs1", 8)] {
            assert_eq!(dscp(text), Ok(value), "{text}");
        }
        for text in ["64", "af44", "af51", "cs8", "", "x"] {
            assert!(dscp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn request_and_response() {
        assert_eq!(sizes("1"), Ok(Sizes { request_bytes: 1, response_bytes: 1 }));
        assert_eq!(sizes("64,1K"), Ok(Sizes { request_bytes: 64, response_bytes: 1024 }));
        assert!(sizes("0").is_err());
        assert!(sizes("1,").is_err());
    }
}
