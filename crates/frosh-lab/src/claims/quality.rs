//! Section 5.2: the accuracy of codes (Figures 4, 5 and 6).

use super::check::{Check, Rule, label, lines, named, ratios};
use crate::paper::{self, Set};
use crate::results::{Record, Results};
use crate::summary::{Cell, cells, curves};

/// "As accurate", "comparable": at least 95 % of the other's MAP, which is about what repeats differ by on small sets.
const COMPARABLE: f64 = 0.95;
/// "A large margin": a fifth more MAP.
const LARGE_MARGIN: f64 = 1.2;
/// "Stably" rising: no round may lose more than 2 %, which queries and random rotations explain.
const STABLE: f64 = 0.98;
/// Curves that "almost overlap": nowhere further apart than a twentieth of the axis.
const OVERLAP: f64 = 0.05;
/// What the paper compares; PCA and its rotations are ours.
const COMPARED: [&str; 6] = ["LSH", "OSH", "FROSH", "DFROSH", "SGH", "OCH-style"];
const SKETCHED: [&str; 3] = ["OSH", "FROSH", "DFROSH"];

const OCH: &str = "The program that the paper ran for OCH was not released; ours is made after \
 its description and may be \
    weaker or stronger.";
const SMALL_BLOCKS: &str = "Probably compression: its error, about sqrt(m/(n q)), comes on top of OSH’s and shows where \
    few blocks of m rows were seen.";

pub(super) fn rules(results: &Results) -> Vec<Rule<'_>> {
    let rounds = cells(results, "rounds", |r| r.map);
    let bits = cells(results, "bits", |r| r.map);
    let rule = |id, claim, place, criterion: String, quantity, checks, missing| Rule {
        id,
        claim,
        place,
        criterion,
        quantity,
        checks,
        most: false,
        why: None,
        missing,
    };
    let (no_rounds, no_bits, no_curves) = (
        "No records of these methods in the rounds experiment.",
        "No records of these methods in the bits experiment.",
        "No records of these methods in the precision-recall experiment.",
    );
    let why_lsh = if results.run.no_rotation {
        "These codes are signs of principal components without a rotation, as Algorithm 1 is \
         printed: components of small \
         variance get as many bits as large ones, and random projections can do better."
    } else {
        "Probably because LSH gains with every bit, while components beyond the data’s own dimension add little: \
         long codes and flat spectra \
         bring the two together."
    };
    let margin = |method| named(method, ratios(&rounds, method, "LSH", |v| v >= LARGE_MARGIN));
    let rising = lines(&rounds, &["OSH", "FROSH"], |r| r.round.map(f64::from))
        .into_iter()
        .map(|line| line.trend(|end, steps| end > 1.0 && steps.iter().all(|s| *s >= STABLE)));
    let like_osh = |method| named(method, ratios(&bits, method, "OSH", |v| v >= COMPARABLE));
    let on_flickr: Vec<Cell> =
        bits.iter().filter(|c| paper::set(&c.of.data) == Some(Set::Flickr)).cloned().collect();
    let beats = |ours: &str, batch: &str| {
        named(&format!("{ours} against {batch}"), ratios(&on_flickr, ours, batch, |v| v > 1.0))
    };
    vec![
        Rule {
            why: Some(SMALL_BLOCKS),
            ..rule(
                "frosh-as-accurate-as-osh",
                "FROSH is as accurate as OSH, on all data sets, after every round.",
                "Section 5.2, Figure 4",
                format!("FROSH’s MAP is at least {COMPARABLE} of OSH’s"),
                "FROSH’s MAP / OSH’s",
                ratios(&rounds, "FROSH", "OSH", |v| v >= COMPARABLE),
                no_rounds,
            )
        },
        Rule {
            why: Some(why_lsh),
            ..rule(
                "far-above-lsh",
                "OSH and FROSH are more accurate than LSH by a large margin, on all data sets.",
                "Section 5.2, Figure 4",
                format!("their MAP is at least {LARGE_MARGIN} times LSH’s, after every round"),
                "MAP / LSH’s MAP",
                [margin("OSH"), margin("FROSH")].concat(),
                no_rounds,
            )
        },
        Rule {
            why: Some(
                "Probably because the first tenth of the rows, which come in no particular order, already \
                 tells the principal components: later rounds change MAP by little more than chance.",
            ),
            ..rule(
                "map-rises-with-rounds",
                "The MAP of OSH and FROSH rises steadily as more data comes in.",
                "Section 5.2, Figure 4",
                format!(
                    "the last round’s MAP is above the first’s, and no round keeps less than \
                     {STABLE} of the one before"
                ),
                "MAP after the last round / after the first",
                rising.collect(),
                no_rounds,
            )
        },
        Rule {
            why: Some(why_lsh),
            ..rule(
                "lsh-lowest",
                "LSH is the least accurate of the compared methods.",
                "Section 5.2, Figure 5",
                "every other method of the paper has a higher MAP".into(),
                "Lowest other MAP / LSH’s",
                extreme(&bits, "LSH", f64::min),
                no_bits,
            )
        },
        Rule {
            most: true,
            why: Some(OCH),
            ..rule(
                "och-best",
                "OCH is the most accurate in most cases.",
                "Section 5.2, Figure 5",
                "OCH has the highest MAP of the paper’s methods in more than half of the cells"
                    .into(),
                "Highest other MAP / OCH’s",
                extreme(&bits, "OCH-style", f64::max),
                no_bits,
            )
        },
        Rule {
            why: Some(SMALL_BLOCKS),
            ..rule(
                "frosh-dfrosh-like-osh",
                "FROSH and DFROSH are about as accurate as OSH at every code length.",
                "Section 5.2, Figure 5",
                format!("their MAP is at least {COMPARABLE} of OSH’s"),
                "MAP / OSH’s MAP",
                [like_osh("FROSH"), like_osh("DFROSH")].concat(),
                no_bits,
            )
        },
        rule(
            "above-batch-on-flickr",
            "On FLICKR-25600, FROSH and DFROSH are more accurate than the batch methods SGH and OCH.",
            "Section 5.2, Figure 5",
            "their MAP is above SGH’s and above OCH’s".into(),
            "MAP / the batch method’s",
            ["FROSH", "DFROSH"]
                .iter()
                .flat_map(|m| [beats(m, "SGH"), beats(m, "OCH-style")])
                .flatten()
                .collect(),
            "No records of FLICKR-25600, or none of SGH and OCH on it.",
        ),
        Rule {
            why: Some(SMALL_BLOCKS),
            ..rule(
                "curves-overlap",
                "The precision-recall curves of OSH, FROSH and DFROSH almost overlap.",
                "Section 5.2, Figure 6",
                format!("at no recall are two of them further apart than {OVERLAP} in precision"),
                "Largest distance in precision between two of the three curves",
                gaps(results),
                no_curves,
            )
        },
        rule(
            "curves-competitive",
            "Those curves are as good as the other methods’, or better.",
            "Section 5.2, Figure 6",
            format!(
                "the area under each is at least {COMPARABLE} of the best of LSH’s, SGH’s and OCH’s"
            ),
            "Area / the best other’s area",
            areas(results),
            no_curves,
        ),
    ]
}

/// In each cell, the lowest (or highest) other MAP over one method's. LSH passes above 1, OCH below: it is its place.
fn extreme<'a>(all: &[Cell<'a>], method: &str, choose: fn(f64, f64) -> f64) -> Vec<Check<'a>> {
    let lowest = choose(0.0, 1.0) == 0.0;
    let check = |cell: &Cell<'a>| {
        let others = all.iter().filter(|o| {
            o.of.method != method
                && COMPARED.contains(&o.of.method.as_str())
                && (&o.of.data, o.of.bits) == (&cell.of.data, cell.of.bits)
        });
        let other = others.map(|o| o.mean).reduce(choose)?;
        let value = other / cell.mean;
        let pass = if lowest { value > 1.0 } else { value < 1.0 };
        Some(Check { of: cell.of, cell: label(cell.of), value, pass })
    };
    all.iter().filter(|c| c.of.method == method).filter_map(check).collect()
}

/// The curves of a data set and code length, by method.
type Curves<'a> = Vec<(&'a Record, Vec<[f64; 4]>)>;

fn by_cell(results: &Results) -> Vec<Curves<'_>> {
    let mut groups: Vec<Curves<'_>> = Vec::new();
    for (record, curve, _) in curves(results) {
        let id = |r: &Record| (r.data.clone(), r.bits);
        match groups.iter_mut().find(|g| id(g[0].0) == id(record)) {
            Some(group) => group.push((record, curve)),
            None => groups.push(vec![(record, curve)]),
        }
    }
    groups
}

fn gaps(results: &Results) -> Vec<Check<'_>> {
    let mut checks = Vec::new();
    for group in by_cell(results) {
        let ours: Vec<_> =
            group.iter().filter(|c| SKETCHED.contains(&c.0.method.as_str())).collect();
        let mut gaps = Vec::new();
        for (i, (_, a)) in ours.iter().enumerate() {
            for (_, b) in &ours[i + 1..] {
                let common = a.iter().filter_map(|p| Some((p, b.iter().find(|q| q[0] == p[0])?)));
                gaps.extend(common.map(|(p, q)| (p[1] - q[1]).abs()));
            }
        }
        if let Some(value) = gaps.into_iter().reduce(f64::max) {
            let of = group[0].0;
            checks.push(Check { of, cell: label(of), value, pass: value <= OVERLAP });
        }
    }
    checks
}

fn areas(results: &Results) -> Vec<Check<'_>> {
    let area = |c: &[[f64; 4]]| -> f64 {
        c.windows(2).map(|w| (w[1][0] - w[0][0]) * (w[0][1] + w[1][1]) / 2.0).sum()
    };
    let mut checks = Vec::new();
    for group in by_cell(results) {
        let others =
            group.iter().filter(|c| ["LSH", "SGH", "OCH-style"].contains(&c.0.method.as_str()));
        let Some(best) = others.map(|c| area(&c.1)).reduce(f64::max) else { continue };
        for (of, curve) in group.iter().filter(|c| SKETCHED.contains(&c.0.method.as_str())) {
            let value = area(curve) / best;
            let cell = format!("{}, {}", of.method, label(of));
            checks.push(Check { of, cell, value, pass: value >= COMPARABLE });
        }
    }
    checks
}
