//! Options of a test that the kernel did not grant. A test that measured something other than requested has
//! failed: it is refused before it begins ([`check`]), or fails afterwards if its report shows the difference
//! ([`check_points`]). Windows are excepted: kernels bound them as a rule, and the result says so.

use std::net::IpAddr;

use results::{
    Direction, End, EndReport, HostFacts, Point, Protocol, ReceivePath, Results, SendPath,
    StreamEnd, TestOutcome, TestSpec,
};
use sys::socket::{Family, Transport};
use traffic::engine::{EngineError, prepare_socket, tcp_socket};

use crate::exit::{VerbError, chain};

/// The sysctl that lists a kernel's congestion controls.
const CONGESTION_CONTROLS: &str = "net.ipv4.tcp_available_congestion_control";

/// Bytes by which TCP may reduce the requested segment size for headers and options.
const OPTIONS_BYTES_MAX: u32 = 40;

/// Codes of findings that report a refused option, and whether only the sending end needs it.
const REFUSALS: [(&str, bool); 6] = [
    ("congestion-control-refused", true),
    ("pacing-refused", true),
    ("dscp-refused", true),
    ("mss-refused", false),
    ("nodelay-refused", false),
    ("pin-refused", false),
];

/// Refuses a test that one of the hosts cannot run as requested, as far as that is known beforehand.
///
/// # Errors
/// What is missing, and what is available instead: exit code 4.
pub(crate) fn check(spec: &TestSpec, results: &Results) -> Result<(), VerbError> {
    cores(sys::thread::first_unusable(&spec.near_cores), End::Near, results.near())?;
    if let Some(far) = results.far() {
        cores(beyond(&spec.far_cores, far), End::Far, far)?;
    }
    let (near_sends, far_sends) = (sends(spec, End::Near), sends(spec, End::Far));
    if spec.protocol == Protocol::Udp && spec.pacing_bits_per_s.is_some() {
        let ends = [(near_sends, Some(results.near())), (far_sends, results.far())];
        ends.into_iter().filter_map(|(sends, host)| host.filter(|_| sends)).try_for_each(pacer)?;
    }
    let socket = probe(spec, results).map_err(|error| VerbError::missing(chain(&error)))?;
    let refused = prepare_socket(&socket, spec, near_sends);
    let refused = EndReport { findings: refused, ..EndReport::default() };
    refusals(spec, End::Near, &refused, results.near())
        .into_iter()
        .next()
        .map_or(Ok(()), |why| Err(VerbError::missing(why)))
}

/// Refuses measured points whose reports show that an option of `asked` was not granted.
///
/// # Errors
/// The ungranted option of the first such point: exit code 4.
pub(crate) fn check_points(asked: &TestSpec, results: &Results) -> Result<(), VerbError> {
    let why = results.points.iter().find_map(|point| of_point(asked, results, point));
    why.map_or(Ok(()), |why| Err(VerbError::missing(why)))
}

fn of_point(asked: &TestSpec, results: &Results, point: &Point) -> Option<String> {
    let (spec, outcome) = point.tested()?;
    // An experiment may have changed the option; it is then no longer the user's request.
    let is_asked = spec.congestion_control == asked.congestion_control
        && spec.mss_bytes == asked.mss_bytes
        && (spec.send_path, spec.receive_path) == (asked.send_path, asked.receive_path);
    is_asked.then(|| ungranted(spec, outcome, results).into_iter().next()).flatten()
}

/// The options that a test was not granted, one line each.
fn ungranted(spec: &TestSpec, outcome: &TestOutcome, results: &Results) -> Vec<String> {
    let unknown = HostFacts::default();
    let far = outcome.far().map(|far| (End::Far, far, results.far().unwrap_or(&unknown)));
    let ends = std::iter::once((End::Near, outcome.near(), results.near())).chain(far);
    let mut missing = Vec::new();
    for (end, account, host) in ends {
        missing.extend(refusals(spec, end, account, host));
        missing.extend(account.streams.iter().find_map(|stream| of_stream(spec, end, stream)));
        missing.extend(copied(spec, end, account));
    }
    missing
}

/// The refused options among the findings of one end.
fn refusals(spec: &TestSpec, end: End, account: &EndReport, host: &HostFacts) -> Vec<String> {
    let mut missing = Vec::new();
    for (code, only_sender) in REFUSALS {
        let mut findings = account.findings.iter().filter(|finding| finding.code == code);
        let Some(finding) = findings.next().filter(|_| sends(spec, end) || !only_sender) else {
            continue;
        };
        let name = end_name(end);
        missing.push(match (code, &spec.congestion_control) {
            ("congestion-control-refused", Some(asked)) => {
                let has = host.sysctls.get(CONGESTION_CONTROLS).map(|list| list.trim());
                let has = has.map_or_else(String::new, |list| {
                    format!(
                        "; available: {}",
                        list.split_whitespace().collect::<Vec<_>>().join(", ")
                    )
                });
                format!("-C {asked}: not available at the {name} end{has}")
            }
            ("pin-refused", _) => format!("the {name} end cannot use the cores: {}", finding.text),
            _ => format!("not granted at the {name} end: {}", finding.text),
        });
    }
    missing
}

/// How a sending TCP stream differs from what was requested.
fn of_stream(spec: &TestSpec, end: End, stream: &StreamEnd) -> Option<String> {
    let tcp = stream.tcp.as_ref().filter(|_| stream.sending)?;
    let name = end_name(end);
    if tcp.mptcp_established == Some(false) {
        return Some(format!("-m: the connections from the {name} end fell back to plain TCP"));
    }
    if let Some(asked) = &spec.congestion_control
        && !tcp.congestion_control.is_empty()
        && tcp.congestion_control != *asked
    {
        let ran = &tcp.congestion_control;
        return Some(format!("-C {asked}: the {name} end ran {ran}"));
    }
    let asked = spec.mss_bytes.filter(|_| tcp.mss_bytes > 0)?;
    let given = tcp.mss_bytes;
    (given > asked || given.saturating_add(OPTIONS_BYTES_MAX) < asked)
        .then(|| format!("-M {asked}: segments from the {name} end carried {given} bytes"))
}

/// Zero copy requested at an end whose kernel copied every byte.
fn copied(spec: &TestSpec, end: End, account: &EndReport) -> Option<String> {
    let shares = || account.streams.iter().filter_map(|stream| stream.zero_copy.as_ref());
    let asked_bytes: u64 = shares().map(|share| share.asked_bytes).sum();
    let zero_copied_bytes: u64 = shares().map(|share| share.zero_copied_bytes).sum();
    if asked_bytes == 0 || zero_copied_bytes > 0 {
        return None;
    }
    let asks = |sending: bool| {
        account.streams.iter().any(|stream| stream.sending == sending && stream.zero_copy.is_some())
    };
    let mut options = Vec::new();
    if asks(true) && spec.send_path == SendPath::Zerocopy {
        options.push("--send-path zerocopy");
    }
    if asks(false) && spec.receive_path == ReceivePath::Zerocopy {
        options.push("--receive-path zerocopy");
    }
    let (options, name) = (options.join(" and "), end_name(end));
    let bytes = units::show_byte_size(asked_bytes);
    Some(format!(
        "{options}: the kernel at the {name} end copied all {bytes}; zero copy is not possible \
         on this path"
    ))
}

/// Whether an end sends data of this test.
fn sends(spec: &TestSpec, end: End) -> bool {
    spec.request_response.is_some()
        || match spec.direction {
            Direction::Forward => end == End::Near,
            Direction::Reverse => end == End::Far,
            Direction::Bidirectional => true,
        }
}

/// A socket configured as the test would configure it at this end.
fn probe(spec: &TestSpec, results: &Results) -> Result<std::os::fd::OwnedFd, EngineError> {
    let address = results.path.address.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
    let family = match address {
        Some(IpAddr::V6(_)) => Family::Ipv6,
        _ => Family::Ipv4,
    };
    match spec.protocol {
        Protocol::Tcp => tcp_socket(family, spec),
        Protocol::Udp => Ok(sys::socket::new_socket(family, Transport::Udp)?),
    }
}

/// The first requested core that a host certainly lacks. A core that its server may not use at present (`taskset`)
/// can still be granted to a thread of it.
fn beyond(asked: &[u32], host: &HostFacts) -> Option<u32> {
    let last = host.usable_cores.iter().copied().max()?.max(host.online_cores_count);
    asked.iter().copied().find(|core| *core > last)
}

fn cores(lacking: Option<u32>, end: End, host: &HostFacts) -> Result<(), VerbError> {
    lacking.map_or(Ok(()), |core| {
        Err(VerbError::missing(format!(
            "core {core} is not usable at the {} end; usable cores: {}",
            end_name(end),
            crate::placement::cores_text(&host.usable_cores)
        )))
    })
}

/// Checks that the far kernel can pace UDP: only the queueing discipline `fq` does; TCP is paced by itself.
fn pacer(host: &HostFacts) -> Result<(), VerbError> {
    let Some(interface) = &host.interface else { return Ok(()) };
    match interface.qdisc.as_deref() {
        // `mq` may have one `fq` per queue below it.
        None | Some("fq" | "mq") => Ok(()),
        Some(other) => Err(VerbError::missing(format!(
            "--pacing-rate: only the fq queueing discipline paces UDP, but {} of {} has {other}: \
             run `tc qdisc replace dev {} root fq` there, or limit the application with -b",
            interface.name, host.name, interface.name
        ))),
    }
}

/// Name of an end: `near` or `far`.
pub(crate) fn end_name(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}

#[cfg(test)]
mod tests;
