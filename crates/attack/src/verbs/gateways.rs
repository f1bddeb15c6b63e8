//! The doors of `gateway watch` and `gateway reflect`: probes, BFD, summaries of sentinels, ICMP errors, and metrics.

mod rig;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use liveness::probe::payload::Kind;
use liveness::probe::{PAYLOAD_BYTES, Payload, Ports};
use liveness::sentinel::Summary;
use liveness::siphash::Key;
use sys::socket::Family;

use crate::case::{Case, Door, Need, Scene};
use rig::{FAR, GATEWAY, HOST, Rig, said, scrape, wrapped};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Verbs, "forged probes at a reflector", forged).needs(Need::Root).waits(),
    Case::of(Door::Verbs, "replayed, fast and long probes at a reflector", amplified)
        .needs(Need::Root)
        .waits(),
    Case::of(Door::Verbs, "slow, endless and deaf clients of a watcher's metrics", metrics)
        .needs(Need::Root)
        .waits(),
    Case::of(Door::Verbs, "BFD packets with every field at its extremes", bfd)
        .needs(Need::Root)
        .waits(),
    Case::of(
        Door::Verbs,
        "summaries, answers and ICMP errors that a watcher never asked for",
        unasked,
    )
    .needs(Need::Root)
    .waits(),
];

/// Ports of summaries and of BFD over one hop.
const SUMMARIES_PORT: u16 = 3997;
const BFD_PORT: u16 = 3784;
/// Longest that metrics may take under attack: they are for people and programs that ask every few seconds.
const SCRAPE_MAX: Duration = Duration::from_secs(1);
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 77);

/// Nothing that the key has not been put to is answered.
fn forged(scene: &mut Scene) -> Result<(), String> {
    let mut rig = Rig::start(scene, "reflect", &[])?;
    rig.is_well()?;
    let mut packets = Vec::new();
    // Every bit of what is said, with right checksums around it.
    for bit in 0..PAYLOAD_BYTES * 8 {
        let packet = rig.genuine();
        let mut inside = packet[packet.len() - PAYLOAD_BYTES..].to_vec();
        inside[bit / 8] ^= 1 << (bit % 8);
        packets.push(wrapped(&inside, [FAR[0].into(), HOST.into()], Ports::default()));
    }
    packets.extend(misdirected(&mut rig));
    let own_key = std::mem::replace(&mut rig.key, Key::new([7; 16]));
    packets.push(rig.genuine());
    rig.key = own_key;
    for length in 0..rig.genuine().len() {
        let packet = rig.genuine();
        packets.push(packet[..length].to_vec());
    }
    for _packet in 0..5000 {
        let length = scene.random.below(1400) as usize;
        let inside: Vec<u8> = (0..length).map(|_| scene.random.bits() as u8).collect();
        packets.push(wrapped(&inside, [FAR[0].into(), HOST.into()], Ports::default()));
    }
    rig.send(&packets)?;
    let answers = rig.answers();
    if !answers.is_empty() {
        return Err(format!("{} of {} forged probes were answered", answers.len(), packets.len()));
    }
    rig.is_well()
}

/// Genuine questions under another's name, of another plan, from other ports, and answers.
fn misdirected(rig: &mut Rig) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let question = rig.question();
    let genuine = rig.packet(&question, [FAR[0], HOST], PAYLOAD_BYTES);
    let inside = &genuine[genuine.len() - PAYLOAD_BYTES..];
    for from in [FAR[1], STRANGER, GATEWAY, HOST, Ipv4Addr::BROADCAST, Ipv4Addr::UNSPECIFIED] {
        packets.push(wrapped(inside, [from.into(), HOST.into()], Ports::default()));
    }
    for (prober, reflector) in [(3999, 3999), (53, 3999), (3998, 3998), (0, 3999)] {
        let ends = [FAR[0].into(), HOST.into()];
        packets.push(wrapped(inside, ends, Ports { prober, reflector }));
    }
    // A tag that is right for a host that the plan does not know, or for another reflector.
    packets.push(rig.packet(&question, [STRANGER, HOST], PAYLOAD_BYTES));
    packets.push(rig.packet(&question, [FAR[0], GATEWAY], PAYLOAD_BYTES));
    packets.push(rig.packet(
        &Payload { kind: Kind::Answer, ..question },
        [FAR[0], HOST],
        PAYLOAD_BYTES,
    ));
    packets.push(rig.packet(&Payload { plan_id: 1, ..question }, [FAR[0], HOST], PAYLOAD_BYTES));
    packets
}

/// Whoever has heard a probe, or has the key, gets no more out of the reflector than was put in.
fn amplified(scene: &mut Scene) -> Result<(), String> {
    let mut rig = Rig::start(scene, "reflect", &[])?;
    rig.is_well()?;
    let heard = rig.genuine();
    rig.send(&vec![heard; 10_000])?;
    let answers = rig.answers().len();
    if answers != 1 {
        return Err(format!("one probe sent 10000 times was answered {answers} times"));
    }
    let mut asked_bytes = 0;
    for bytes in (PAYLOAD_BYTES..1472).step_by(59) {
        let question = rig.question();
        let packet = rig.packet(&question, [FAR[0], HOST], bytes);
        asked_bytes += packet.len();
        rig.send([&packet])?;
    }
    let answered_bytes: usize = rig.answers().iter().sum();
    if answered_bytes == 0 || answered_bytes > asked_bytes {
        return Err(format!("{asked_bytes} bytes were answered with {answered_bytes}"));
    }
    let (rate, began) = (u64::from(rig.rate()?), Instant::now());
    let mut answers = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let flood: Vec<Vec<u8>> = (0..2000).map(|_| rig.genuine()).collect();
        rig.send(&flood)?;
        // Another host is not kept from its own.
        let question = rig.question();
        let other = rig.packet(&question, [FAR[1], HOST], PAYLOAD_BYTES);
        rig.send([&other])?;
        answers += rig.answers().len() as u64;
    }
    // As many at once as in a second, and the other host's.
    let most = rate * (began.elapsed().as_secs() + 2) + 100;
    if answers > most {
        return Err(format!("{answers} answers in {:?}, at most {most} expected", began.elapsed()));
    }
    std::thread::sleep(Duration::from_secs(1));
    rig.is_well()
}

fn watch(scene: &Scene) -> Result<(Rig, SocketAddr), String> {
    let more =
        ["--no-steer", "--bfd", "--metrics-listen", "127.0.0.1:0", "--state", "/nonexistent"];
    let mut rig = Rig::start(scene, "watch", &more)?;
    let address = rig.metrics_address()?;
    rig.on_host(|| scrape(address))?;
    std::thread::sleep(Duration::from_millis(300));
    rig.daemon.take_base()?;
    Ok((rig, address))
}

/// One that takes long may be a hiccup of the machine; two are not.
fn check_scrapes(took: &[Duration]) -> Result<(), String> {
    let slow: Vec<&Duration> = took.iter().filter(|&&took| took > SCRAPE_MAX).collect();
    if slow.len() > 1 { Err(format!("metrics took {slow:?}")) } else { Ok(()) }
}

/// The watcher is the same process, and tells who asks.
fn still_watches(mut rig: Rig, address: SocketAddr) -> Result<(), String> {
    let took: Result<Vec<Duration>, String> =
        (0..3).map(|_| rig.on_host(|| scrape(address))).collect();
    check_scrapes(&took?)?;
    rig.daemon.check()
}

/// What a client of the metrics may do; the connection stays until the end.
const CLIENTS: &[fn(&mut TcpStream) -> std::io::Result<()>] = &[
    |_| Ok(()),
    |client| client.write_all(b"GET /metr"),
    |client| client.write_all(&[b'a'; 1 << 20]),
    |client| client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n"),
    |client| client.write_all(&b"GET /metrics HTTP/1.1\r\n\r\n".repeat(1000)),
    |client| client.write_all(b"GET /../../etc/passwd HTTP/1.1\r\n\r\n"),
    |client| client.write_all(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"),
    |client| client.shutdown(Shutdown::Both),
    |client| client.shutdown(Shutdown::Write),
    |client| {
        for _byte in 0..20 {
            client.write_all(b"X")?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    },
];

fn metrics(scene: &mut Scene) -> Result<(), String> {
    let (rig, address) = watch(scene)?;
    rig.on_host(|| {
        let namespace = std::fs::File::open("/proc/thread-self/ns/net").map_err(said)?;
        std::thread::scope(|scope| {
            let crowd: Vec<_> = (0..200)
                .map(|number| {
                    let namespace = &namespace;
                    scope.spawn(move || {
                        use std::os::fd::AsFd;
                        sys::namespace::enter_network(namespace.as_fd()).map_err(said)?;
                        for turn in 0..3 {
                            let mut client = TcpStream::connect(address).map_err(said)?;
                            // It may be rerouted in the middle.
                            CLIENTS[(number + turn) % CLIENTS.len()](&mut client).ok();
                            client.set_read_timeout(Some(Duration::from_secs(1))).map_err(said)?;
                            client.read_exact(&mut [0; 1]).ok();
                        }
                        Ok::<(), String>(())
                    })
                })
                .collect();
            let mut took = Vec::new();
            while crowd.iter().any(|client| !client.is_finished()) {
                took.push(scrape(address)?);
                std::thread::sleep(Duration::from_millis(50));
            }
            for client in crowd {
                client.join().map_err(|_panic| "a client of the suite panicked")??;
            }
            check_scrapes(&took)
        })
    })?;
    still_watches(rig, address)
}

/// A gateway of the plan that says anything at all.
fn bfd(scene: &mut Scene) -> Result<(), String> {
    let (rig, address) = watch(scene)?;
    let socket = UdpSocket::bind((GATEWAY, 49_500)).map_err(said)?;
    socket.connect((HOST, BFD_PORT)).map_err(said)?;
    socket.set_nonblocking(true).map_err(said)?;
    sys::hop_limit::set(&socket, Family::Ipv4, 255).map_err(said)?;
    let receiver = UdpSocket::bind((GATEWAY, BFD_PORT)).map_err(said)?;
    receiver.set_nonblocking(true).map_err(said)?;
    let (began, mut sent) = (Instant::now(), 0_u64);
    let mut came = 0_u64;
    let mut speak = |bytes: &[u8]| {
        // Refused once by ICMP, it is sent with the next try.
        sent += u64::from(socket.send(bytes).is_ok());
        while receiver.recv(&mut [0; 64]).is_ok() {
            came += 1;
        }
    };
    // Version 1, down, multiplier 3, 24 bytes, discriminator 7, intervals of 50 ms.
    let plain =
        [0x20, 0x40, 3, 24, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0xc3, 0x50, 0, 0, 0xc3, 0x50, 0, 0, 0, 0];
    for at in 0..plain.len() {
        for value in 0..=255 {
            let mut bytes = plain;
            bytes[at] = value;
            speak(&bytes);
        }
    }
    for bits in 0..=u16::MAX {
        let mut bytes = plain;
        bytes[..2].copy_from_slice(&bits.to_be_bytes());
        // As if it knew the session here, now and then.
        bytes[8..12].copy_from_slice(&(scene.random.bits() as u32).to_be_bytes());
        speak(&bytes);
    }
    for length in 0..200 {
        speak(&vec![0x20; length]);
    }
    for ttl in [1, 64, 254, 255] {
        sys::hop_limit::set(&socket, Family::Ipv4, ttl).map_err(said)?;
        for _packet in 0..2000 {
            let bytes: Vec<u8> = (0..24).map(|_| scene.random.bits() as u8).collect();
            speak(&bytes);
        }
    }
    // What it sends by itself, every 50 ms at most a tenth early, to each of two gateways; and answers to polls.
    let own = began.elapsed().as_millis() as u64 / 45 + 10;
    if came == 0 || came > sent + own {
        return Err(format!("{sent} packets were answered with {came}"));
    }
    still_watches(rig, address)
}

fn unasked(scene: &mut Scene) -> Result<(), String> {
    let (mut rig, address) = watch(scene)?;
    let mut packets = Vec::new();
    let summaries = Ports { prober: 40_000, reflector: SUMMARIES_PORT };
    let back = Ports { prober: 3999, reflector: 3998 };
    let plan_id = rig.question().plan_id;
    for number in 0..3000 {
        let length = scene.random.below(1400) as usize;
        let random: Vec<u8> = (0..length).map(|_| scene.random.bits() as u8).collect();
        let (sentinel, sequence) = (number % 4, u64::MAX - u64::from(number));
        let (interval_ms, verdicts) = (scene.nasty() as u32, Vec::new());
        let (session, nonce) = (scene.nasty(), scene.nasty());
        let summary =
            Summary { plan_id, sentinel, session, sequence, nonce, interval_ms, verdicts };
        let foreign = summary.encode(&Key::new([9; 16]));
        let ends = [GATEWAY.into(), HOST.into()];
        packets.push(wrapped(&random, ends, summaries));
        packets.push(wrapped(&foreign, ends, summaries));
        packets.push(wrapped(&foreign[..foreign.len().min(length)], ends, summaries));
        let question = rig.question();
        let answer = Payload { kind: Kind::Answer, ..question };
        let answer = rig.packet(&answer, [HOST, FAR[0]], PAYLOAD_BYTES);
        let inside = &answer[answer.len() - PAYLOAD_BYTES..];
        packets.push(wrapped(inside, [FAR[0].into(), HOST.into()], back));
        packets.push(wrapped(&random, [FAR[0].into(), HOST.into()], back));
        packets.push(unreachable(&random, &answer));
    }
    rig.send(&packets)?;
    still_watches(rig, address)
}

/// An ICMP error about a packet that was never sent, or about anything.
fn unreachable(random: &[u8], quoted: &[u8]) -> Vec<u8> {
    let code = random.first().copied().unwrap_or(0) % 16;
    let quote = if code.is_multiple_of(2) { quoted } else { random };
    let mut packet = wrapped(quote, [GATEWAY.into(), HOST.into()], Ports::default());
    packet[9] = 1;
    packet[20..28].copy_from_slice(&[3, code, 0, 0, 0, 0, 0, 0]);
    for (at, bytes) in [(10, 0..20), (22, 20..packet.len())] {
        packet[at..at + 2].fill(0);
        let words = packet[bytes].chunks(2);
        let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        let mut sum: u32 = words.map(word).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    packet
}
