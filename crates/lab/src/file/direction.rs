use crate::file::LabFileError;
use crate::file::section::{Section, nearest};
use crate::plan::{BurstPlan, DirectionPlan, ShaperPlan};

/// What may be said of a direction: in a link for both, in its `forward` or `backward` for one.
pub(super) const DIRECTION_KEYS: &[&str] = &[
    "delay",
    "jitter",
    "jitter_distribution",
    "rate",
    "queue",
    "ecn_threshold",
    "shaper",
    "loss",
    "burst_loss",
    "reorder",
    "reorder_by",
];

/// The direction that `section` describes, on top of `base`.
pub(super) fn read_direction(
    section: &Section<'_>,
    base: &DirectionPlan,
) -> Result<DirectionPlan, LabFileError> {
    let base = base.clone();
    Ok(DirectionPlan {
        seed: base.seed,
        delay_ns: section.duration_ns("delay")?.unwrap_or(base.delay_ns),
        jitter_ns: section.duration_ns("jitter")?.unwrap_or(base.jitter_ns),
        jitter_is_normal: read_distribution(section)?.unwrap_or(base.jitter_is_normal),
        rate_bits_per_s: section.rate("rate")?.or(base.rate_bits_per_s),
        queue_bytes: section.size("queue")?.or(base.queue_bytes),
        mark_above_bytes: section.size("ecn_threshold")?.or(base.mark_above_bytes),
        shaper: read_shaper(section)?.or(base.shaper),
        loss: section.share("loss")?.unwrap_or(base.loss),
        burst_loss: read_burst(section)?.or(base.burst_loss),
        reorder: section.share("reorder")?.unwrap_or(base.reorder),
        reorder_by_ns: section.duration_ns("reorder_by")?.unwrap_or(base.reorder_by_ns),
    })
}

fn read_distribution(section: &Section<'_>) -> Result<Option<bool>, LabFileError> {
    match section.text("jitter_distribution")? {
        None => Ok(None),
        Some("uniform") => Ok(Some(false)),
        Some("normal") => Ok(Some(true)),
        Some(other) => {
            let near = nearest(other, &["uniform", "normal"]);
            Err(section
                .error_at("jitter_distribution", format!("unknown distribution '{other}'{near}")))
        }
    }
}

fn read_shaper(section: &Section<'_>) -> Result<Option<ShaperPlan>, LabFileError> {
    let Some(shaper) = section.section("shaper")? else { return Ok(None) };
    shaper.only(&["rate", "burst"])?;
    let missing = |key: &str| shaper.error(format!("shaper: '{key}' is missing"));
    Ok(Some(ShaperPlan {
        rate_bits_per_s: shaper.rate("rate")?.ok_or_else(|| missing("rate"))?,
        burst_bytes: shaper.size("burst")?.ok_or_else(|| missing("burst"))?,
    }))
}

fn read_burst(section: &Section<'_>) -> Result<Option<BurstPlan>, LabFileError> {
    let Some(burst) = section.section("burst_loss")? else { return Ok(None) };
    burst.only(&["enter", "leave", "loss"])?;
    let missing = |key: &str| burst.error(format!("burst_loss: '{key}' is missing"));
    Ok(Some(BurstPlan {
        enter: burst.share("enter")?.ok_or_else(|| missing("enter"))?,
        leave: burst.share("leave")?.ok_or_else(|| missing("leave"))?,
        loss: burst.share("loss")?.unwrap_or(1.0),
    }))
}
