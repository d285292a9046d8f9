//! Section 5.2: training times (Table 2), and the memory that this run does not measure.

use super::check::{Check, Rule, label, named, ratios};
use crate::paper::{self, Set};
use crate::results::Results;
use crate::summary::{Cell, cells};
use crate::text::{factor, sig};

/// "Similar" time: within a factor of two; the paper's own are from 0.56 to 1.01.
const SIMILAR: f64 = 2.0;
/// "Significantly more": half as much again; the paper's own are from 1.9 to 4.5.
const MORE: f64 = 1.5;
/// "Around one-fifth": at most a quarter; less than a fifth is more than was claimed.
const FIFTH: f64 = 0.25;
/// Methods that learn, in the paper.
const LEARNING: [&str; 5] = ["SGH", "OCH-style", "OSH", "FROSH", "DFROSH"];

const MISSING: &str = "No records of these methods in the train-time experiment.";
const LESS_TO_GAIN: &str = "Our OSH is not the paper’s: it shrinks by an eigenproblem of l rows \
 instead of a singular value \
    decomposition of l by d, which probably leaves FROSH less to save.";
const OTHER_PROGRAMS: &str = "Our SGH and OCH-style are compiled, where the paper’s programs ran \
 in MATLAB; OCH-style learns \
    from a sample of fixed size, so its time hardly grows with the data.";

pub(super) fn rules(results: &Results) -> Vec<Rule<'_>> {
    let time = cells(results, "train-time", |r| r.seconds.filter(|s| *s > 0.0));
    let rule = |id, claim, criterion: String, quantity, checks, why| Rule {
        id,
        claim,
        place: "Section 5.2, Table 2",
        criterion,
        quantity,
        checks,
        most: false,
        why,
        missing: MISSING,
    };
    let on = |flickr: bool| -> Vec<Cell> {
        let known =
            |c: &&Cell| paper::set(&c.of.data).is_some_and(|s| (s == Set::Flickr) == flickr);
        time.iter().filter(known).cloned().collect()
    };
    // The sentences sum up the paper's own table, so its smallest ratios are the bounds.
    let tenth = paper::ratios("OSH", "FROSH").0;
    let batch = paper::ratios("SGH", "DFROSH").0.min(paper::ratios("OCH-style", "DFROSH").0);
    let most = paper::ratios("SGH", "DFROSH").1.max(paper::ratios("OCH-style", "DFROSH").1);
    let against = |method| named(method, ratios(&time, method, "DFROSH", |v| v >= batch));
    vec![
        rule(
            "och-slowest",
            "OCH takes the most time.",
            "OCH takes longer than every other method of the paper".into(),
            "OCH’s time / the slowest other’s",
            first(&time, "OCH-style", f64::max, |v| v > 1.0),
            Some(OTHER_PROGRAMS),
        ),
        rule(
            "sgh-like-osh",
            "SGH and OSH take similar time on CIFAR-10, MNIST and GIST-1M.",
            format!("their times are within a factor of {SIMILAR}"),
            "SGH’s time / OSH’s",
            ratios(&on(false), "SGH", "OSH", |v| (1.0 / SIMILAR..=SIMILAR).contains(&v)),
            Some(OTHER_PROGRAMS),
        ),
        rule(
            "sgh-slower-on-flickr",
            "On FLICKR-25600, SGH takes much more time than OSH.",
            format!("SGH takes at least {MORE} times OSH’s time"),
            "SGH’s time / OSH’s",
            ratios(&on(true), "SGH", "OSH", |v| v >= MORE),
            Some(OTHER_PROGRAMS),
        ),
        rule(
            "frosh-tenth-of-osh",
            "FROSH takes one-twentieth to one-tenth of OSH’s time.",
            format!(
                "OSH takes at least {} times FROSH’s time, the smallest ratio in the paper’s \
                 table; more than 20 is more \
                 than was claimed",
                sig(tenth)
            ),
            "OSH’s time / FROSH’s",
            ratios(&time, "OSH", "FROSH", |v| v >= tenth),
            Some(LESS_TO_GAIN),
        ),
        rule(
            "dfrosh-fifth-of-frosh",
            "DFROSH on five machines takes about one-fifth of FROSH’s time.",
            format!("DFROSH takes at most {FIFTH} of FROSH’s time"),
            "DFROSH’s time / FROSH’s",
            ratios(&time, "DFROSH", "FROSH", |v| v <= FIFTH),
            Some(
                "Probably the merge of five sketches, which FROSH does not have; on short streams it is not small.",
            ),
        ),
        rule(
            "dfrosh-fastest",
            "DFROSH is the fastest of all.",
            "every other method of the paper that learns takes longer".into(),
            "DFROSH’s time / the fastest other’s",
            first(&time, "DFROSH", f64::min, |v| v < 1.0),
            None,
        ),
        rule(
            "dfrosh-against-batch",
            "DFROSH is 40 to 300 times faster than the batch methods.",
            format!(
                "SGH and OCH take at least {} times DFROSH’s time, the smallest ratio in the \
                 paper’s table (its largest is {})",
                factor(batch),
                factor(most)
            ),
            "Batch method’s time / DFROSH’s",
            [against("SGH"), against("OCH-style")].concat(),
            Some(OTHER_PROGRAMS),
        ),
        Rule {
            place: "Sections 3.3 and 5.2",
            missing: "These experiments do not measure memory. The library’s own tests do: at \
             most 3 l d floats and the \
                      sample of rows.",
            ..rule(
                "memory",
                "FROSH needs one pass and as little memory as OSH, of the order of d l.",
                "not measured here".into(),
                "",
                Vec::new(),
                None,
            )
        },
    ]
}

/// In each cell, a method's time over the slowest (or fastest) other's.
fn first<'a>(
    all: &[Cell<'a>],
    method: &str,
    choose: fn(f64, f64) -> f64,
    pass: impl Fn(f64) -> bool,
) -> Vec<Check<'a>> {
    let check = |cell: &Cell<'a>| {
        let others = all.iter().filter(|o| {
            o.of.method != method
                && LEARNING.contains(&o.of.method.as_str())
                && (&o.of.data, o.of.bits) == (&cell.of.data, cell.of.bits)
        });
        let value = cell.mean / others.map(|o| o.mean).reduce(choose)?;
        Some(Check { of: cell.of, cell: label(cell.of), value, pass: pass(value) })
    };
    all.iter().filter(|c| c.of.method == method).filter_map(check).collect()
}
