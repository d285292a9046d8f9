//! Section 5.1: FD against FFD on made-up data (Figures 2 and 3).

use super::check::{Check, Rule, label, lines, ratios};
use crate::report::swept;
use crate::results::Results;
use crate::summary::{Cell, cells};

/// "Comparable" errors: within a factor of two, that is, what twice as many rows of sketch would make up for.
const COMPARABLE: f64 = 2.0;
/// "Much lower" time: at most half; less would not be worth a second algorithm.
const MUCH_FASTER: f64 = 2.0;
/// "Slightly" more error: at most half as much again.
const SLIGHTLY: f64 = 1.5;
/// The largest step against a trend that repeats may explain.
const WOBBLE: f64 = 1.05;
/// A time that is "further reduced": by a tenth at least, which is more than times vary between repeats.
const REDUCED: f64 = 0.9;
/// Slopes of time on logarithmic axes that count as linear; costs that do not grow make small cells flatter.
const LINEAR: (f64, f64) = (0.8, 1.2);

const BOTH: [&str; 2] = ["FD", "FFD"];
const MISSING: &str = "No records of the sketch experiment.";
const COMPRESSION: &str = "Compression adds an error of its own, which falls as sqrt(m/(n q)) (q \
 rows from each block of m) \
    and which FD does not have: where n/m is small it outweighs FD’s error.";

pub(super) fn rules(results: &Results) -> Vec<Rule<'_>> {
    let error = cells(results, "sketch", |r| r.relative_error);
    let time = cells(results, "sketch", |r| r.seconds);
    let rule = |id, claim, place, criterion: String, quantity, checks, why| Rule {
        id,
        claim,
        place,
        criterion,
        quantity,
        checks,
        most: false,
        why,
        missing: MISSING,
    };
    let linear = format!("the slope on logarithmic axes is between {} and {}", LINEAR.0, LINEAR.1);
    vec![
        rule(
            "ffd-error-comparable",
            "FFD’s error is comparable to FD’s.",
            "Section 5.1, Figure 2",
            format!("FFD’s error is at most {COMPARABLE} times FD’s"),
            "FFD’s error / FD’s",
            ratios(&error, "FFD", "FD", |v| v <= COMPARABLE),
            Some(COMPRESSION),
        ),
        rule(
            "ffd-time-lower",
            "FFD takes far less time than FD.",
            "Section 5.1, Figure 3",
            format!("FD takes at least {MUCH_FASTER} times FFD’s time"),
            "FD’s time / FFD’s",
            inverse(ratios(&time, "FFD", "FD", |v| v <= 1.0 / MUCH_FASTER)),
            Some(
                "FD shrinks once in l/2 rows and FFD once in m: where m is hardly larger than l, little is \
                 saved.",
            ),
        ),
        rule(
            "error-falls-with-l",
            "The error falls gradually as the sketch gets more rows.",
            "Section 5.1, Figure 2 (left)",
            format!(
                "the error falls from the smallest l to the largest, and no step raises it by \
                 more than {}",
                percent(WOBBLE)
            ),
            "Error at the largest l / at the smallest",
            trends(&error, "l", |end, steps| end < 1.0 && steps.iter().all(|s| *s <= WOBBLE)),
            None,
        ),
        rule(
            "insensitive-to-m",
            "FFD hardly depends on m; a larger m raises its error only slightly.",
            "Section 5.1, Figure 2",
            format!(
                "the error with the largest m is at most {SLIGHTLY} times that with the smallest"
            ),
            "Error at the largest m / at the smallest",
            over_m(&error, |v| v <= SLIGHTLY),
            Some(
                "The part of the error that compression adds grows as sqrt(m/(n q)): eight times \
                 m, up to 2.8 times the error.",
            ),
        ),
        rule(
            "larger-m-faster",
            "A larger m makes FFD faster still.",
            "Section 5.1, Figure 3",
            format!("the time with the largest m is at most {REDUCED} of that with the smallest"),
            "Time at the largest m / at the smallest",
            over_m(&time, |v| v <= REDUCED),
            Some(
                "A larger m saves shrinks only. Once these are rare, the transform, which does \
                 not depend on m, is all that is left.",
            ),
        ),
        rule(
            "error-falls-with-n",
            "The errors fall gradually with more rows of data.",
            "Section 5.1, Figure 2 (middle)",
            format!(
                "the error falls from the smallest n to the largest, and no step raises it by \
                 more than {}",
                percent(WOBBLE)
            ),
            "Error at the largest n / at the smallest",
            trends(&error, "n", |end, steps| end < 1.0 && steps.iter().all(|s| *s <= WOBBLE)),
            Some("FD’s relative error has no term that falls with n; only compression’s does."),
        ),
        rule(
            "time-linear-in-n",
            "Time is linear in the number of rows.",
            "Section 5.1, Figure 3 (middle)",
            linear.clone(),
            "Slope of time over n",
            slopes(&time, "n"),
            Some(
                "Probably because work comes in blocks of m rows: where n is a few blocks only, it grows in steps.",
            ),
        ),
        rule(
            "error-rises-with-d",
            "The errors of FD and FFD rise with the dimension.",
            "Section 5.1, Figure 2 (right)",
            format!(
                "the error rises from the smallest d to the largest, and no step lowers it by \
                 more than {}",
                percent(WOBBLE)
            ),
            "Error at the largest d / at the smallest",
            trends(&error, "d", |end, steps| end > 1.0 && steps.iter().all(|s| *s >= 1.0 / WOBBLE)),
            None,
        ),
        rule(
            "ffd-slightly-worse-over-d",
            "Over all dimensions, FFD is slightly worse than FD.",
            "Section 5.1, Figure 2 (right)",
            format!("FFD’s error is between 1 and {SLIGHTLY} times FD’s"),
            "FFD’s error / FD’s",
            ratios(&of_sweep(&error, "d"), "FFD", "FD", |v| (1.0..=SLIGHTLY).contains(&v)),
            Some(COMPRESSION),
        ),
        rule(
            "time-linear-in-d",
            "Time is linear in the dimension.",
            "Section 5.1, Figure 3 (right)",
            linear,
            "Slope of time over d",
            slopes(&time, "d"),
            Some(
                "As m = tau d grows with d, FFD shrinks less often, and only its transform grows \
                 with d; nor does the eigenproblem of a shrink depend on d.",
            ),
        ),
    ]
}

fn percent(factor: f64) -> String {
    format!("{:.0} %", (factor - 1.0) * 100.0)
}

fn of_sweep<'a>(all: &[Cell<'a>], sweep: &str) -> Vec<Cell<'a>> {
    all.iter().filter(|c| c.of.sweep.as_deref() == Some(sweep)).cloned().collect()
}

fn trends<'a>(all: &[Cell<'a>], sweep: &str, pass: impl Fn(f64, &[f64]) -> bool) -> Vec<Check<'a>> {
    let lines = lines(&of_sweep(all, sweep), &BOTH, |r| swept(r, sweep));
    lines.into_iter().map(|line| line.trend(&pass)).collect()
}

fn slopes<'a>(all: &[Cell<'a>], sweep: &str) -> Vec<Check<'a>> {
    let lines = lines(&of_sweep(all, sweep), &BOTH, |r| swept(r, sweep));
    lines.into_iter().map(|line| line.slope(|v| (LINEAR.0..=LINEAR.1).contains(&v))).collect()
}

/// FFD's largest m against its smallest, where everything else is the same.
fn over_m<'a>(all: &[Cell<'a>], pass: impl Fn(f64) -> bool) -> Vec<Check<'a>> {
    let point = |c: &Cell<'a>| (&c.of.data, &c.of.sweep, c.of.rows, c.of.dim, c.of.sketch_rows);
    let ffd: Vec<&Cell> =
        all.iter().filter(|c| c.of.method == "FFD" && c.of.tau.is_some()).collect();
    let check = |largest: &&Cell<'a>| {
        let others = || ffd.iter().filter(|c| point(c) == point(largest));
        let smallest = others().min_by_key(|c| c.of.tau)?;
        let is_end =
            others().all(|c| c.of.tau <= largest.of.tau) && smallest.of.tau < largest.of.tau;
        let value = largest.mean / smallest.mean;
        let cell = label(&crate::results::Record { tau: None, ..largest.of.clone() });
        is_end.then(|| Check { of: largest.of, cell, value, pass: pass(value) })
    };
    ffd.iter().filter_map(check).collect()
}

/// The same cells with their ratios turned over.
fn inverse(mut checks: Vec<Check<'_>>) -> Vec<Check<'_>> {
    checks.iter_mut().for_each(|c| c.value = 1.0 / c.value);
    checks
}
