//! The numbers that matter most: ratios of two methods, one line each.

use crate::paper;
use crate::results::Results;
use crate::summary::{Cell, Measure, area, bits, cells, data_sets, median, range, ratios};
use crate::text::{factor, list, sig, with_m};

/// The figure, what the ratio is, the experiment, the measurement, and the two methods.
type Ratio = (&'static str, &'static str, &'static str, Measure, [&'static str; 2]);

const SECONDS: Measure = |r| r.seconds;
const MAP: Measure = |r| r.map;
const CURVES: &str = "precision-recall";
#[rustfmt::skip] // A table.
const RATIOS: [Ratio; 13] = [
    ("figure-2", "FFD’s error / FD’s", "sketch", |r| r.relative_error, ["FFD", "FD"]),
    ("figure-3", "FD’s time / FFD’s", "sketch", SECONDS, ["FD", "FFD"]),
    ("figure-4", "FROSH’s MAP / OSH’s after the last round", "rounds", MAP, ["FROSH", "OSH"]),
    ("figure-5", "FROSH’s MAP / OSH’s", "bits", MAP, ["FROSH", "OSH"]),
    ("figure-5", "DFROSH’s MAP / OSH’s", "bits", MAP, ["DFROSH", "OSH"]),
    ("figure-5", "FROSH’s MAP / LSH’s", "bits", MAP, ["FROSH", "LSH"]),
    ("figure-6", "Area under FROSH’s curve / OSH’s", CURVES, area, ["FROSH", "OSH"]),
    ("figure-6", "Area under FROSH’s curve / LSH’s", CURVES, area, ["FROSH", "LSH"]),
    ("table-2", "OSH’s training time / FROSH’s, without a learned rotation (in the paper: 9.4 to 19)", "train-time", SECONDS, ["OSH", "FROSH"]),
    ("table-2", "OSH’s whole training time / FROSH’s, with the learned rotation", "whole-training", SECONDS, ["OSH", "FROSH"]),
    ("streams", "MAP of versions / of the frozen model", "streams", MAP, ["versions", "frozen"]),
    ("streams", "MAP of versions / of encoding all again", "streams", MAP, ["versions", "encode all"]),
    ("table-2", "DFROSH’s training time / FROSH’s, five workers", "train-time", SECONDS, ["DFROSH", "FROSH"]),
];

/// What is to be said on each figure: (its id, a line of text, not escaped).
pub(super) fn findings(results: &Results) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for (figure, what, experiment, measure, [first, second]) in RATIOS {
        let mut cells = cells(results, experiment, measure);
        let last = cells.iter().filter_map(|c| c.of.round).max();
        cells.retain(|c| c.of.round == last);
        let found = ratios(&cells, first, second);
        let spread = match experiment {
            "sketch" => over_m(&found),
            "train-time" | "whole-training" => by_kind(&found, factor),
            _ => by_kind(&found, hundredths),
        };
        all.extend(spread.map(|spread| (figure, format!("{what}: {spread}."))));
    }
    all.extend(best(results).map(|text| ("figure-5", text)));
    all
}

/// A ratio near 1.
pub(super) fn hundredths(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// Median and range, real data and stand-ins apart.
pub(super) fn by_kind(found: &[(Cell, f64)], show: fn(f64) -> String) -> Option<String> {
    let part = |stand_in: bool| {
        let here = found.iter().filter(|f| paper::is_stand_in(&f.0.of.data) == stand_in);
        let values: Vec<f64> = here.map(|f| f.1).collect();
        let (low, high) = range(values.iter().copied())?;
        let (middle, low, high) = (show(median(values)?), show(low), show(high));
        Some(if low == high { middle } else { format!("{middle} ({low} to {high})") })
    };
    match (part(false), part(true)) {
        (Some(real), Some(made)) => Some(format!("{real} on real data, {made} on stand-ins")),
        (real, made) => real.or(made.map(|made| format!("{made}, on stand-ins"))),
    }
}

/// The median for each m, and the range over all.
fn over_m(found: &[(Cell, f64)]) -> Option<String> {
    let mut taus: Vec<_> = found.iter().filter_map(|f| f.0.of.tau).collect();
    taus.sort_unstable();
    taus.dedup();
    let one = |tau: &u32| {
        let values = found.iter().filter(|f| f.0.of.tau == Some(*tau)).map(|f| f.1);
        Some(format!("{} with {}", factor(median(values.collect())?), with_m("", Some(*tau))))
    };
    let medians: Vec<String> = taus.iter().filter_map(one).collect();
    let (low, high) = range(found.iter().map(|f| f.1))?;
    Some(format!(
        "{} (medians); {} to {} over all cells",
        list(&medians),
        factor(low),
        factor(high)
    ))
}

/// The most accurate method of each data set at its longest code.
fn best(results: &Results) -> Option<String> {
    let all = cells(results, "bits", |r| r.map);
    let winner = |data: &str| {
        let here = all.iter().filter(|c| c.of.data == data);
        let longest = bits(here.clone().map(|c| c.of)).last().copied();
        let best =
            here.filter(|c| c.of.bits == longest).max_by(|a, b| a.mean.total_cmp(&b.mean))?;
        Some(format!("{} on {} ({})", best.of.method, paper::label(data), sig(best.mean)))
    };
    let winners: Vec<String> =
        data_sets(all.iter().map(|c| c.of)).into_iter().filter_map(winner).collect();
    (!winners.is_empty())
        .then(|| format!("Highest MAP with the longest codes: {}.", list(&winners)))
}
