//! Events as lines: JSON for programs, sentences for people.

use liveness::states::{BfdInput, Cause, Event, EventKind, GatewayState};
use serde::Serialize;

/// How events are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// One JSON object a line.
    #[default]
    Json,
    /// One sentence a line, with the time of day (UTC).
    Text,
}

/// One line of the event stream as JSON.
#[derive(Debug, Serialize)]
struct JsonLine<'a> {
    /// Seconds since 1970, to the millisecond.
    unix_s: f64,
    plan: &'a str,
    /// Name of the gateway that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// Names of the gateways that the event lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<&'a str>,
    /// Events that were lost before this one because their reader was too slow.
    #[serde(skip_serializing_if = "is_zero")]
    lost_count: u64,
    #[serde(flatten)]
    event: &'a Event,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Where and when something happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) plan: &'a str,
    /// Names of the gateways, in the plan's order.
    pub(crate) names: &'a [String],
    pub(crate) unix_us: u64,
    pub(crate) lost_count: u64,
}

impl Place<'_> {
    fn unix_s(&self) -> f64 {
        (self.unix_us / 1000) as f64 / 1000.0
    }

    fn name(&self, gateway: u16) -> &str {
        self.names.get(usize::from(gateway)).map_or("?", String::as_str)
    }

    fn list(&self, gateways: &[u16]) -> String {
        let names: Vec<&str> = gateways.iter().map(|gateway| self.name(*gateway)).collect();
        names.join(" ")
    }
}

/// The line of an event, ended by a newline.
pub(crate) fn of_event(form: Form, place: &Place<'_>, event: &Event) -> Option<String> {
    let line = match form {
        Form::Json => {
            let one = about(&event.kind);
            let json = JsonLine {
                unix_s: place.unix_s(),
                plan: place.plan,
                name: one.map(|gateway| place.name(gateway)),
                names: listed(&event.kind).iter().map(|gateway| place.name(*gateway)).collect(),
                lost_count: place.lost_count,
                event,
            };
            serde_json::to_string(&json).ok()?
        }
        Form::Text => {
            let lost = match place.lost_count {
                0 => String::new(),
                count => format!(" ({count} lines before this one were lost)"),
            };
            format!("{}  {}{lost}", time_of_day(place.unix_us), sentence(place, &event.kind))
        }
    };
    Some(line + "\n")
}

/// The line that something could not be done, ended by a newline.
pub(crate) fn of_complaint(form: Form, place: &Place<'_>, text: &str) -> String {
    match form {
        Form::Json => {
            let (unix_s, plan) = (place.unix_s(), place.plan);
            let line = serde_json::json!({
                "unix_s": unix_s, "plan": plan, "event": "complaint", "text": text
            });
            format!("{line}\n")
        }
        Form::Text => format!("{}  {text}\n", time_of_day(place.unix_us)),
    }
}

fn about(kind: &EventKind) -> Option<u16> {
    match kind {
        EventKind::State { gateway, .. }
        | EventKind::HoldDownCutShort { gateway }
        | EventKind::Bfd { gateway, .. }
        | EventKind::PathMtu { gateway, .. } => Some(*gateway),
        _other => None,
    }
}

fn listed(kind: &EventKind) -> &[u16] {
    match kind {
        EventKind::Use { gateways } => gateways,
        EventKind::AllFailed { held } => held,
        _other => &[],
    }
}

fn time_of_day(unix_us: u64) -> String {
    let ms = unix_us / 1000 % 86_400_000;
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:03}", ms % 1000)
}

fn sentence(place: &Place<'_>, kind: &EventKind) -> String {
    match kind {
        EventKind::State { gateway, to, cause, is_used, missed_count, hold_down_ns, .. } => {
            let mut text = format!("{} is {}", place.name(*gateway), state(*to));
            if let Some(cause) = cause {
                text += &format!(": {}", reason(*cause, *missed_count));
            }
            if *hold_down_ns > 0 {
                let seconds = *hold_down_ns as f64 / 1e9;
                text += &format!("; out of use for {seconds} s at least");
            } else if cause.is_some() && *is_used {
                text += "; still in use, because no better one exists";
            }
            text
        }
        EventKind::Use { gateways } => format!("routes lead over {}", place.list(gateways)),
        EventKind::AllFailed { held } => {
            format!("all gateways have failed; routes stay on {}", place.list(held))
        }
        EventKind::AllFailedEnded => "a gateway has come back".to_owned(),
        EventKind::HoldDownCutShort { gateway } => {
            let name = place.name(*gateway);
            format!("{name} is used before its hold-down ends: there is no other")
        }
        EventKind::Overslept { late_ns } => {
            let ms = late_ns / 1_000_000;
            format!("this watcher ran {ms} ms late; the open round does not count")
        }
        EventKind::Starved { stolen_ns } => {
            let ms = stolen_ns / 1_000_000;
            format!(
                "a processor of this machine stood still for {ms} ms; the open rounds do not \
                 count"
            )
        }
        EventKind::ClockWentBack { by_ns } => {
            format!("the clock went back by {} ms", by_ns / 1_000_000)
        }
        EventKind::Carrier { is_up: true } => "this host's link is up".to_owned(),
        EventKind::Carrier { is_up: false } => {
            "this host's link has no carrier; no gateway is judged meanwhile".to_owned()
        }
        EventKind::Bfd { gateway, says } => {
            let says = match says {
                BfdInput::Up => "up",
                BfdInput::Down => "down",
                BfdInput::Leaving => "shut down by the gateway itself",
            };
            format!("{}: its BFD session is {says}", place.name(*gateway))
        }
        EventKind::PathMtu { gateway, mtu_bytes } => {
            let name = place.name(*gateway);
            format!("{name}: a router reports that packets of at most {mtu_bytes} bytes fit")
        }
    }
}

fn state(state: GatewayState) -> &'static str {
    match state {
        GatewayState::Up => "up",
        GatewayState::Suspect => "suspect",
        GatewayState::Down => "down",
        GatewayState::MtuHole => "an MTU black hole",
        GatewayState::Draining => "draining",
        GatewayState::Held => "failed and held",
    }
}

fn reason(cause: Cause, missed_count: u32) -> String {
    match cause {
        // It was held while all had failed, and another one is better now.
        Cause::Probes if missed_count == 0 => {
            "too few rounds of probes have been answered since it failed".to_owned()
        }
        Cause::Probes => format!("{missed_count} rounds of probes were not answered"),
        Cause::Unreachable => "a router reports that it cannot forward".to_owned(),
        Cause::MtuHole => "full-size probes are lost, small ones are not".to_owned(),
        Cause::Bfd => "its BFD session went down".to_owned(),
        Cause::Reported => "reported by sentinels".to_owned(),
        Cause::Before => "as when the watcher began".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_json_object_or_one_sentence() {
        let names = ["g1".to_owned(), "g2".to_owned()];
        let place = Place {
            plan: "cumulus",
            names: &names,
            unix_us: (86_400 + 3661) * 1_000_000 + 5000,
            lost_count: 0,
        };
        let down = Event {
            at_ns: 1,
            kind: EventKind::State {
                gateway: 1,
                from: GatewayState::Suspect,
                to: GatewayState::Down,
                cause: Some(Cause::Probes),
                is_used: false,
                missed_count: 3,
                hold_down_ns: 2_000_000_000,
            },
        };
        let text = of_event(Form::Text, &place, &down).unwrap();
        assert_eq!(
            text,
            "01:01:01.005  g2 is down: 3 rounds of probes were not answered; out of use for 2 s at least\n"
        );
        let used = Event { at_ns: 1, kind: EventKind::Use { gateways: vec![0] } };
        let lost = Place { lost_count: 4, ..place };
        let json = of_event(Form::Json, &lost, &used).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["names"], serde_json::json!(["g1"]));
        assert_eq!((&json["lost_count"], &json["event"]), (&4.into(), &"use".into()));
    }
}
