//! The processor quota of a control group.

use results::{CpuQuota as Quota, Limit};
use units::show_seconds;

use super::causes::throttled;
use super::trials::cpu_experiments;
use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{HostView, Observed, end_name};
use crate::remedy::{Remedy, change};
use crate::symptoms::names;
use crate::thresholds::{hosts, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct CpuQuota;

impl Mechanism for CpuQuota {
    fn limit(&self) -> Limit {
        Limit::CpuQuota
    }

    fn page(&self) -> Page {
        Page {
            title: "a processor quota",
            ceiling: "the processor time the control group allows",
            mechanism: "A control group (a container, a systemd unit) has a limit on its processor time in each period (`cpu.max`; `cpu.cfs_quota_us` of version 1). When the time is used up, all threads of the group stop until the period ends, even if the host is idle.",
            evidence: "`cpu.stat`: periods in which the group was stopped, and for how long; the process \
                used about as many cores as the quota allows.",
            against: "The group was hardly ever stopped, or there is no quota.",
            experiment: "Smaller blocks, which cost more per byte: throughput falls in proportion, as the time \
                allowed stays the same. A larger quota: `cpu.max`.",
            advice: "Raise or lift the quota; or spend less on each byte (larger blocks, sendfile, offloads).",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = worse(seen);
        let weighed = Weighing::most(signs::LOCATED)
            .by(throttled(seen, host), "the quota stopped the group only part of the time")
            .unless(seen.queue(), hosts::QUOTA_QUEUE, weighing::QUEUE);
        let quota = quota_of(host);
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(host.end),
            evidence: quota.map(|quota| evidence(seen, host, quota)).unwrap_or_default(),
            against: match quota {
                Some(quota) => format!(
                    "its quota of {:.2} cores stopped it in {} of {} periods",
                    quota.cores, quota.throttled_count, quota.periods_count
                ),
                None => match [&seen.sender, &seen.receiver].map(|host| host.counters.is_some()) {
                    [true, true] => "no quota binds either end's process".to_owned(),
                    [false, false] => "neither end reports the quota of its process".to_owned(),
                    [is_sender, _] => {
                        let told = if is_sender { &seen.sender } else { &seen.receiver };
                        let end = end_name(told.end);
                        format!(
                            "no quota binds the {end} end's process; the other end reports none"
                        )
                    }
                },
            },
            ceiling_bits_per_s: (weighed.weight() > signs::PERHAPS).then_some(seen.rate()),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        cpu_experiments(self.limit(), seen, worse(seen))
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let host = worse(seen);
        let quota = quota_of(host)?;
        // Version 1 has another file, for which there is no setting: the advice gives the command.
        if file_of(quota) != version_2_file(quota) {
            return None;
        }
        let period_us = (quota.period_s * 1e6).round();
        let key = format!("cgroup:{}/cpu.max", quota.group.trim_end_matches('/'));
        let now = format!("{:.0} {period_us:.0}", quota.cores * period_us);
        let stopped = stopped(seen, host).min(predictions::STOPPED_MOST);
        Some(Remedy::setting(
            host.end,
            change(&key, Some(&now), &format!("max {period_us:.0}"))?,
            (seen.rate() / (1.0 - stopped))
                .min(headroom.unwrap_or(f64::MAX))
                .max(seen.rate() * predictions::LIFT_LEAST),
            "without the quota nothing stops its threads: throughput rises",
        ))
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let host = worse(seen);
        let end = end_name(host.end);
        let mut lines = Vec::new();
        if let Some(quota) = quota_of(host) {
            let file = file_of(quota);
            let none = if file.ends_with("cfs_quota_us") { "-1" } else { "'max 100000'" };
            lines.push(format!(
                "at the {end} end raise the quota of group {}: echo {none} > {file} (systemd: CPUQuota=; \
                 Docker: --cpus)",
                quota.group
            ));
        }
        lines.push(
            "or spend less on each byte: --send-path sendfile, larger blocks, offloads on"
                .to_owned(),
        );
        Advice::all(lines)
    }
}

/// The file that holds a quota: the one it was read from, in earlier documents that of version 2.
fn file_of(quota: &Quota) -> String {
    quota.file.clone().unwrap_or_else(|| version_2_file(quota))
}

fn version_2_file(quota: &Quota) -> String {
    format!("/sys/fs/cgroup{}/cpu.max", quota.group.trim_end_matches('/'))
}

fn quota_of<'a>(host: &HostView<'a>) -> Option<&'a Quota> {
    host.counters?.quota.as_ref()
}

/// Time that a quota stopped an end's threads over the measured time, 0 to 1.
fn stopped(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    seen.shown().host(host.end, names::QUOTA_STOPPED).unwrap_or(0.0)
}

/// The end that was throttled more.
fn worse<'s, 'a>(seen: &'s Observed<'a>) -> &'s HostView<'a> {
    if stopped(seen, &seen.receiver) > stopped(seen, &seen.sender) {
        &seen.receiver
    } else {
        &seen.sender
    }
}

fn evidence(seen: &Observed<'_>, host: &HostView<'_>, quota: &Quota) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: group {} may use {:.2} cores; it was stopped in {} of {} periods of {}, {} in all",
        host.name(),
        quota.group,
        quota.cores,
        quota.throttled_count,
        quota.periods_count,
        show_seconds(quota.period_s),
        show_seconds(quota.throttled_s)
    )];
    if let Some(used) = host.process_cores {
        lines.push(format!("its process used {used:.2} cores of them"));
    }
    if let Some(idle) = seen.shown().host(host.end, names::IDLE) {
        lines.push(format!("the host's cores were {} idle meanwhile", percent(idle)));
    }
    lines.extend(seen.thread_text(host).map(|text| format!("{}: {text}", host.name())));
    lines
}
