//! What a claim's cells are, and each cell's number.

use crate::results::{Record, Results};
use crate::summary::{Cell, Measure, area, cells, curves, ratios, same_point};
use crate::text::{tick, with_m};

/// Our own version of a method whose program was not released.
const OCH: &str = "OCH-style";

/// One cell's number, and whether it meets the criterion.
#[derive(Clone, Debug)]
pub(super) struct Check<'a> {
    pub(super) of: &'a Record,
    /// Which cell, in words, without the data set.
    pub(super) cell: String,
    pub(super) value: f64,
    pub(super) pass: bool,
    /// Whether the number depends on our own OCH-style.
    pub(super) och: bool,
}

/// Some measurements: the experiment, what of it, and which records.
#[derive(Clone, Copy)]
pub(super) struct Of(pub(super) &'static str, pub(super) Measure, pub(super) fn(&Record) -> bool);

/// How cells become numbers.
pub(super) enum Test {
    /// First method / second, at every point.
    Ratio(Of, &'static [(&'static str, &'static str)]),
    /// FFD with the largest m / with the smallest.
    OverM(Of),
    /// The last value of a line / its first; each step must stay within a factor.
    Trend(Of, &'static [&'static str], (f64, f64)),
    /// The slope of a line where both axes are logarithmic.
    Slope(Of),
    /// A method / the smallest or largest of others.
    Extreme(Of, &'static [&'static str], &'static [&'static str], fn(f64, f64) -> f64),
    /// As `Extreme`, for a claim on most cells.
    Mostly(Of, &'static [&'static str], &'static [&'static str], fn(f64, f64) -> f64),
    /// The largest difference in precision between two of some curves.
    Gap(&'static [&'static str]),
    /// Not measured: why.
    Nothing(&'static str),
}

impl Test {
    /// Whether more than half of the cells are enough.
    pub(super) fn most_are_enough(&self) -> bool {
        matches!(self, Test::Mostly(..))
    }

    /// What to say where there are no cells.
    pub(super) fn missing(&self) -> &'static str {
        match self {
            Test::Nothing(why) => why,
            _ => "There are no such measurements.",
        }
    }

    /// A number for each cell, with whether it lies within bounds.
    pub(super) fn checks<'a>(&self, results: &'a Results, bounds: (f64, f64)) -> Vec<Check<'a>> {
        let passes = |value: f64| (bounds.0..=bounds.1).contains(&value);
        let check = |of: &'a Record, cell: String, value: f64| Check {
            of,
            cell,
            value,
            pass: passes(value),
            och: of.method == OCH,
        };
        let get = |of: &Of| -> Vec<Cell<'a>> {
            let mut all = cells(results, of.0, of.1);
            all.retain(|c| (of.2)(c.of));
            all
        };
        match self {
            Test::Nothing(_) => Vec::new(),
            Test::Ratio(of, pairs) => {
                let all = get(of);
                let named = |(first, second): &(&str, &str)| {
                    let name = match (pairs.len(), second) {
                        (1, _) => String::new(),
                        (_, second) => format!("{first} / {second}, "),
                    };
                    let och = *first == OCH || *second == OCH;
                    let found = ratios(&all, first, second).into_iter();
                    found
                        .map(|(c, value)| {
                            let cell = format!("{name}{}", label(c.of, true));
                            Check { och, ..check(c.of, cell, value) }
                        })
                        .collect::<Vec<_>>()
                };
                pairs.iter().flat_map(named).collect()
            }
            Test::OverM(of) => {
                let all: Vec<_> = get(of).into_iter().filter(|c| c.of.tau.is_some()).collect();
                let pair = |large: &Cell<'a>| {
                    let here = || all.iter().filter(|c| same_point(c.of, large.of));
                    let small = here().min_by_key(|c| c.of.tau)?;
                    let is_largest = here().all(|c| c.of.tau <= large.of.tau);
                    (is_largest && small.of.tau < large.of.tau)
                        .then(|| check(large.of, label(large.of, false), large.mean / small.mean))
                };
                all.iter().filter_map(pair).collect()
            }
            Test::Trend(of, methods, (low, high)) => {
                let lines = lines(get(of))
                    .into_iter()
                    .filter(|l| methods.contains(&l[0].of.method.as_str()));
                let trend = |line: Vec<Cell<'a>>| {
                    let steady =
                        line.windows(2).all(|w| (*low..=*high).contains(&(w[1].mean / w[0].mean)));
                    let value = line[line.len() - 1].mean / line[0].mean;
                    let one = check(line[0].of, line_label(line[0].of), value);
                    Check { pass: one.pass && steady, ..one }
                };
                lines.map(trend).collect()
            }
            Test::Slope(of) => {
                let slope =
                    |line: Vec<Cell<'a>>| check(line[0].of, line_label(line[0].of), slope(&line));
                lines(get(of)).into_iter().map(slope).collect()
            }
            Test::Extreme(of, methods, others, choose)
            | Test::Mostly(of, methods, others, choose) => {
                let all = get(of);
                let against = |c: &Cell<'a>| {
                    let rivals = all.iter().filter(|o| {
                        o.of.method != c.of.method
                            && others.contains(&o.of.method.as_str())
                            && same_point(o.of, c.of)
                    });
                    let rivals: Vec<_> = rivals.collect();
                    let best = rivals.iter().map(|o| o.mean).reduce(choose)?;
                    let och = rivals.iter().any(|o| o.of.method == OCH && o.mean == best);
                    let name = if methods.len() > 1 {
                        format!("{}, ", c.of.method)
                    } else {
                        String::new()
                    };
                    let one = check(c.of, format!("{name}{}", label(c.of, true)), c.mean / best);
                    Some(Check { och: och || one.och, ..one })
                };
                all.iter()
                    .filter(|c| methods.contains(&c.of.method.as_str()))
                    .filter_map(against)
                    .collect()
            }
            Test::Gap(methods) => {
                let mut all = curves(results);
                all.retain(|c| methods.contains(&c.of.method.as_str()));
                let mut gaps: Vec<Check<'a>> = Vec::new();
                for (i, a) in all.iter().enumerate() {
                    for b in all[i + 1..].iter().filter(|b| b.x == a.x && same_point(a.of, b.of)) {
                        let one = check(a.of, label(a.of, true), (a.mean - b.mean).abs());
                        match gaps.iter_mut().find(|g| same_point(g.of, a.of)) {
                            Some(gap) if gap.value >= one.value => (),
                            Some(gap) => *gap = one,
                            None => gaps.push(one),
                        }
                    }
                }
                gaps
            }
        }
    }
}

/// The area under the precision-recall curves.
pub(super) const AREA: Of = Of("precision-recall", area, |_| true);

/// Cells in words.
fn label(r: &Record, with_block: bool) -> String {
    let mut parts = Vec::new();
    if r.sweep.is_some() {
        parts.extend(r.sketch_rows.map(|l| format!("l = {l}")));
        parts.push(format!("n = {}, d = {}", tick(r.rows as f64), tick(r.dim as f64)));
        parts.extend(r.tau.filter(|_| with_block).map(|tau| with_m("", Some(tau))));
    }
    parts.extend(r.bits.map(|b| format!("{b} bits")));
    parts.extend(r.round.map(|round| format!("round {round}")));
    parts.join(", ")
}

fn line_label(r: &Record) -> String {
    let bits = r.bits.map_or(String::new(), |b| format!(", {b} bits"));
    with_m(&r.method, r.tau) + &bits
}

/// Lines of at least two points: one method, data set, m and code length; cells come by growing x.
fn lines(cells: Vec<Cell<'_>>) -> Vec<Vec<Cell<'_>>> {
    let mut lines: Vec<Vec<Cell<'_>>> = Vec::new();
    let id = |r: &Record| (r.data.clone(), r.method.clone(), r.tau, r.bits);
    for cell in cells {
        match lines.iter_mut().find(|line| id(line[0].of) == id(cell.of)) {
            Some(line) => line.push(cell),
            None => lines.push(vec![cell]),
        }
    }
    lines.retain(|line| line.len() > 1);
    lines
}

/// By least squares, both axes logarithmic.
fn slope(line: &[Cell<'_>]) -> f64 {
    let logs: Vec<(f64, f64)> = line.iter().map(|c| (c.x.ln(), c.mean.ln())).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().fold((0.0, 0.0), |m, p| (m.0 + p.0 / n, m.1 + p.1 / n));
    let across: f64 = logs.iter().map(|p| (p.0 - mean.0) * (p.1 - mean.1)).sum();
    across / logs.iter().map(|p| (p.0 - mean.0).powi(2)).sum::<f64>()
}
