//! What each option sets, and what does not go together.

use super::getopt::{atoi, number_and_rest, strtol};
use super::table::Key;
use super::{Family, KeepAlive, Options, OptionsError, ParameterError, Request, Role, Transport};

const SECONDS_MAX: i64 = 86_400;
const MILLISECONDS_MAX: i64 = SECONDS_MAX * 1000;
const BLOCK_BYTES_MAX: f64 = 1_048_576.0;
const TCP_BLOCK_BYTES: u32 = 131_072;
/// iperf3's default for UDP, 1 Mbit/s in binary.
const UDP_BITS_PER_S: u64 = 1_048_576;

/// What was seen while the options were read, for the checks at the end.
#[derive(Debug, Default)]
struct Seen {
    role: Option<Role>,
    server_only: bool,
    client_only: bool,
    rate: bool,
    duration: bool,
    receive_timeout: bool,
    block_bytes: Option<f64>,
}

/// The request that these options make.
pub(super) fn request(found: &[(Key, Option<String>)]) -> Result<Request, OptionsError> {
    let mut options = Options::new(Role::Server);
    let mut seen = Seen::default();
    for (key, value) in found {
        match key {
            Key::Help => return Ok(Request::Help),
            Key::Version => return Ok(Request::Version),
            _ => apply(*key, value.as_deref(), &mut options, &mut seen)?,
        }
    }
    finish(&mut options, seen)?;
    Ok(Request::Run(Box::new(options)))
}

fn apply(
    key: Key,
    value: Option<&str>,
    options: &mut Options,
    seen: &mut Seen,
) -> Result<(), ParameterError> {
    let text = value.unwrap_or_default();
    if common(key, value, text, options, seen)? {
        return Ok(());
    }
    if server(key, text, options)? {
        seen.server_only = true;
        return Ok(());
    }
    seen.client_only = true;
    if !sockets(key, text, options)? {
        client(key, text, options, seen)?;
    }
    Ok(())
}

/// Options of both roles; `false`: not one of them.
fn common(
    key: Key,
    value: Option<&str>,
    text: &str,
    options: &mut Options,
    seen: &mut Seen,
) -> Result<bool, ParameterError> {
    match key {
        Key::Server if matches!(seen.role, Some(Role::Client { .. })) => {
            return Err(ParameterError::BothRoles);
        }
        Key::Server => seen.role = Some(Role::Server),
        Key::Client if seen.role == Some(Role::Server) => return Err(ParameterError::BothRoles),
        Key::Client => {
            let (host, device) = split_device(text);
            seen.role = Some(Role::Client { host });
            options.bind_device = device.or(options.bind_device.take());
        }
        Key::Bind => {
            let (address, device) = split_device(text);
            options.bind_address = Some(address);
            options.bind_device = device.or(options.bind_device.take());
        }
        Key::BindDevice => options.bind_device = Some(text.to_owned()),
        Key::Port => options.port = port(text)?,
        Key::Format => options.format = format(text)?,
        Key::Interval => options.interval_s = interval(text)?,
        Key::PidFile => options.pid_file = Some(text.to_owned()),
        Key::File => options.file = Some(text.to_owned()),
        Key::Affinity => {
            (options.core, options.server_core) = cores(text)?;
            seen.client_only |= options.server_core.is_some();
        }
        Key::Verbose => options.verbose = true,
        Key::Json => options.json = true,
        Key::JsonStream => (options.json, options.json_stream) = (true, true),
        Key::JsonStreamFull => options.json_stream_full = true,
        Key::LogFile => options.log_file = Some(text.to_owned()),
        Key::ForceFlush => options.force_flush = true,
        Key::Timestamps => options.timestamps = Some(value.unwrap_or("%c ").to_owned()),
        Key::ReceiveTimeout => {
            options.receive_timeout_ms =
                within(text, 100, MILLISECONDS_MAX, ParameterError::ReceiveTimeout)?;
            seen.receive_timeout = true;
        }
        Key::SendTimeout => {
            let limit_ms = within(text, 0, MILLISECONDS_MAX, ParameterError::SendTimeout)?;
            options.send_timeout_ms = narrow(limit_ms);
        }
        Key::KeepAlive => options.keep_alive = Some(keep_alive(text)?),
        Key::Debug => {
            let level = value.map_or(4, atoi);
            options.debug_level = u8::try_from(level).unwrap_or(4).min(4);
        }
        Key::Version4 => options.family = Family::V4,
        Key::Version6 => options.family = Family::V6,
        Key::Mptcp => {
            options.mptcp = true;
            options.client.transport = Transport::Tcp;
        }
        _ => return absent(key).map_or(Ok(false), Err),
    }
    Ok(true)
}

/// What this program does not do.
fn absent(key: Key) -> Option<ParameterError> {
    let option = match key {
        Key::Sctp => return Some(ParameterError::Sctp),
        Key::Username => "--username",
        Key::RsaPublic => "--rsa-public-key-path",
        Key::RsaPrivate => "--rsa-private-key-path",
        Key::AuthorizedUsers => "--authorized-users-path",
        Key::TimeSkew => "--time-skew-threshold",
        Key::Pkcs1Padding => "--use-pkcs1-padding",
        _ => return None,
    };
    Some(ParameterError::Authentication(option))
}

/// Options of the server; `false`: not one of them.
fn server(key: Key, text: &str, options: &mut Options) -> Result<bool, ParameterError> {
    let server = &mut options.server;
    match key {
        Key::Daemon => server.daemon = true,
        Key::OneOff => server.one_off = true,
        Key::ServerBitrateLimit => {
            let (rate, seconds) = match text.split_once('/') {
                Some((rate, seconds)) => (rate, Some(seconds)),
                None => (text, None),
            };
            if let Some(seconds) = seconds {
                let number = number_and_rest(seconds).map_or(0.0, |(number, _)| number);
                if number != 0.0 && !(0.1..=60.0).contains(&number) {
                    return Err(ParameterError::RateInterval);
                }
                server.rate_limit_interval_s = number;
            }
            server.rate_limit_bits_per_s = units::saturating_u64(scaled(rate, 1000.0)?);
        }
        Key::IdleTimeout => {
            server.idle_timeout_s = within(text, 1, SECONDS_MAX, ParameterError::IdleTimeout)?;
        }
        Key::ServerMaxDuration => {
            server.max_duration_s = within(text, 0, SECONDS_MAX, ParameterError::Duration)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A client's options about its sockets; `false`: not one of them.
fn sockets(key: Key, text: &str, options: &mut Options) -> Result<bool, ParameterError> {
    let client = &mut options.client;
    match key {
        Key::ConnectTimeout => {
            client.connect_timeout_ms = Some(units::saturating_u64(scaled(text, 1024.0)?));
        }
        Key::ClientPort => client.first_port = Some(port(text)?),
        Key::Window => {
            let bytes = scaled(text, 1024.0)?;
            if bytes > 536_870_912.0 {
                return Err(ParameterError::BufferSize);
            }
            client.window_bytes = narrow(units::saturating_u64(bytes));
        }
        Key::Congestion => client.congestion = Some(text.to_owned()),
        Key::Mss => client.mss_bytes = narrow(within(text, 0, 32_767, ParameterError::Mss)?),
        Key::NoDelay => client.nodelay = true,
        Key::TypeOfService => {
            let value = strtol(text).and_then(|value| u8::try_from(value).ok());
            client.type_of_service = value.ok_or(ParameterError::TypeOfService)?;
        }
        Key::Dscp => {
            client.type_of_service = service_class(text).ok_or(ParameterError::TypeOfService)?;
        }
        Key::FlowLabel => {
            let value = strtol(text).filter(|value| (1..=0xfffff).contains(value));
            client.flow_label = value
                .and_then(|value| u32::try_from(value).ok())
                .ok_or(ParameterError::FlowLabel)?;
        }
        Key::FqRate => {
            client.pacing_bits_per_s = units::saturating_u64(scaled(text, 1000.0)?);
        }
        Key::NoFqSocketPacing => client.pacing_bits_per_s = 0,
        Key::PacingTimer => {
            client.pacing_timer_us = units::saturating_u64(scaled(text, 1024.0)?);
        }
        Key::DontFragment => client.dont_fragment = true,
        Key::Zerocopy => client.zerocopy = true,
        Key::SkipRxCopy => client.skip_rx_copy = true,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A client's options about its test.
fn client(
    key: Key,
    text: &str,
    options: &mut Options,
    seen: &mut Seen,
) -> Result<(), ParameterError> {
    let client = &mut options.client;
    match key {
        Key::Udp => client.transport = Transport::Udp,
        Key::Bitrate => {
            let (rate, burst) = text.split_once('/').unwrap_or((text, ""));
            if !burst.is_empty() || text.contains('/') {
                client.burst_count = narrow(within(burst, 1, 1000, ParameterError::Burst)?);
            }
            client.rate_bits_per_s = units::saturating_u64(scaled(rate, 1000.0)?);
            seen.rate = true;
        }
        Key::Time => {
            client.duration_s = narrow(within(text, 0, SECONDS_MAX, ParameterError::Duration)?);
            seen.duration = true;
        }
        Key::Bytes => client.total_bytes = units::saturating_u64(scaled(text, 1024.0)?),
        Key::BlockCount => client.total_blocks = units::saturating_u64(scaled(text, 1024.0)?),
        Key::Length => seen.block_bytes = Some(scaled(text, 1024.0)?),
        Key::Parallel => {
            let count = within(text, i64::MIN, 128, ParameterError::Streams)?;
            client.streams = narrow(count);
        }
        Key::Reverse if client.bidirectional => {
            return Err(ParameterError::ReverseAndBidirectional);
        }
        Key::Reverse => client.reverse = true,
        Key::Bidir if client.reverse => return Err(ParameterError::ReverseAndBidirectional),
        Key::Bidir => client.bidirectional = true,
        Key::Omit => client.omit_s = narrow(within(text, 0, 600, ParameterError::Omit)?),
        Key::Title => client.title = Some(text.to_owned()),
        Key::ExtraData => client.extra_data = Some(text.to_owned()),
        Key::GetServerOutput => client.get_server_output = true,
        Key::UdpCounters64Bit => client.udp_counters_64bit = true,
        Key::RepeatingPayload => client.repeating_payload = true,
        Key::Gsro => client.gsro = true,
        _ => {}
    }
    Ok(())
}

fn finish(options: &mut Options, seen: Seen) -> Result<(), ParameterError> {
    match &seen.role {
        Some(Role::Client { .. }) if seen.server_only => return Err(ParameterError::ServerOnly),
        Some(Role::Server) if seen.client_only => return Err(ParameterError::ClientOnly),
        _ => {}
    }
    let client = &mut options.client;
    let sends_only = !client.reverse && !client.bidirectional;
    if matches!(seen.role, Some(Role::Client { .. })) && seen.receive_timeout && sends_only {
        return Err(ParameterError::ReceiveTimeoutWhenSending);
    }
    let udp = client.transport == Transport::Udp;
    if options.file.is_some() {
        return Err(if udp { ParameterError::FileOverUdp } else { ParameterError::File });
    }
    client.block_bytes = block_size(seen.block_bytes.unwrap_or(0.0), udp)?;
    if client.streams == 0 {
        return Err(ParameterError::NoStreams);
    }
    if !seen.rate && udp {
        client.rate_bits_per_s = UDP_BITS_PER_S;
    }
    let (bytes, blocks) = (client.total_bytes != 0, client.total_blocks != 0);
    if (seen.duration && (bytes || blocks)) || (bytes && blocks) {
        return Err(ParameterError::EndConditions);
    }
    if bytes || blocks {
        client.duration_s = 0;
    }
    options.role = seen.role.ok_or(ParameterError::NoRole)?;
    Ok(())
}

fn block_size(bytes: f64, udp: bool) -> Result<u32, ParameterError> {
    if udp && bytes != 0.0 && !(16.0..=65_507.0).contains(&bytes) {
        return Err(ParameterError::DatagramSize);
    }
    if !(0.0..=BLOCK_BYTES_MAX).contains(&bytes) {
        return Err(ParameterError::BlockSize);
    }
    let bytes: u32 = narrow(units::saturating_u64(bytes));
    Ok(if bytes == 0 && !udp { TCP_BLOCK_BYTES } else { bytes })
}

/// `address%device`: only a link-local IPv6 address keeps its scope.
fn split_device(text: &str) -> (String, Option<String>) {
    match text.split_once('%') {
        Some((address, device)) if !address.is_empty() && !device.is_empty() => {
            let literal = address.parse::<std::net::Ipv6Addr>();
            if literal.is_ok_and(|address| address.is_unicast_link_local()) {
                (text.to_owned(), None)
            } else {
                (address.to_owned(), Some(device.to_owned()))
            }
        }
        _ => (text.to_owned(), None),
    }
}

fn port(text: &str) -> Result<u16, ParameterError> {
    u16::try_from(atoi(text)).ok().filter(|&port| port > 0).ok_or(ParameterError::Port)
}

fn format(text: &str) -> Result<char, ParameterError> {
    text.chars().next().filter(|letter| "kmgtKMGT".contains(*letter)).ok_or(ParameterError::Format)
}

fn interval(text: &str) -> Result<f64, ParameterError> {
    let seconds = number_and_rest(text).map_or(0.0, |(number, _)| number);
    if seconds == 0.0 || (0.1..=60.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(ParameterError::Interval)
    }
}

fn cores(text: &str) -> Result<(Option<u32>, Option<u32>), ParameterError> {
    let core = |value: i64| match u32::try_from(value) {
        Ok(core @ 0..=1023) => Ok(core),
        _ => Err(ParameterError::Affinity),
    };
    let own = core(strtol(text).ok_or(ParameterError::Affinity)?)?;
    let far = text.split_once(',').map(|(_, far)| core(atoi(far))).transpose()?;
    Ok((Some(own), far))
}

fn keep_alive(text: &str) -> Result<KeepAlive, ParameterError> {
    let mut fields =
        text.splitn(3, '/').map(|field| narrow(u64::try_from(atoi(field)).unwrap_or(0)));
    let keep_alive = KeepAlive {
        idle_s: fields.next().unwrap_or(0),
        interval_s: fields.next().unwrap_or(0),
        probes_count: fields.next().unwrap_or(0),
    };
    let retries_s = keep_alive.interval_s.saturating_mul(keep_alive.probes_count);
    if keep_alive.idle_s != 0 && keep_alive.idle_s <= retries_s {
        return Err(ParameterError::KeepAlive);
    }
    Ok(keep_alive)
}

/// `--dscp`: a name or 0 to 63, as the whole type-of-service byte (RFC 2474, RFC 5865).
fn service_class(text: &str) -> Option<u8> {
    const OTHERS: [(&str, u8); 5] = [
        ("ef", 0xb8),
        ("va", 0xb0),
        ("lowdelay", 0x10),
        ("throughput", 0x08),
        ("reliability", 0x04),
    ];
    let name = text.to_ascii_lowercase();
    if let Some((_, value)) = OTHERS.iter().find(|(other, _)| *other == name) {
        return Some(*value);
    }
    if let Some(&[class @ b'1'..=b'4', drop @ b'1'..=b'3']) =
        name.strip_prefix("af").map(str::as_bytes)
    {
        return Some(((class - b'0') << 5) + ((drop - b'0') << 3));
    }
    if let Some(&[class @ b'0'..=b'7']) = name.strip_prefix("cs").map(str::as_bytes) {
        return Some((class - b'0') << 5);
    }
    let digits = text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, 'x' | 'X' | '+'));
    let value = strtol(text).filter(|value| digits && (0..=63).contains(value))?;
    u8::try_from(value << 2).ok()
}

/// A number with one of `tTgGmMkK` behind it, in steps of `base`.
fn scaled(text: &str, base: f64) -> Result<f64, ParameterError> {
    let bad = || ParameterError::Unit(text.to_owned());
    let (number, rest) = number_and_rest(text).ok_or_else(bad)?;
    let exponent = match rest.chars().next().map(|letter| letter.to_ascii_lowercase()) {
        None => 0,
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some(_) => return Err(bad()),
    };
    Ok(number * base.powi(exponent))
}

fn within(text: &str, min: i64, max: i64, error: ParameterError) -> Result<u64, ParameterError> {
    let value = atoi(text);
    if value < min || value > max {
        return Err(error);
    }
    Ok(u64::try_from(value).unwrap_or(0))
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
