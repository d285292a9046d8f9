//! From cells to a verdict.

use super::{Claim, OnData, Verdict};
use crate::paper;
use crate::report::with_m;
use crate::results::Record;
use crate::summary::{Cell, data_sets, median, pairs};
use crate::text::{list, sig, tick};

/// One cell's number, and whether it is good enough.
#[derive(Clone, Debug)]
pub(super) struct Check<'a> {
    pub(super) of: &'a Record,
    /// Which cell, in words, without the data set.
    pub(super) cell: String,
    pub(super) value: f64,
    pub(super) pass: bool,
}

/// A claim with its cells.
pub(super) struct Rule<'a> {
    pub(super) id: &'static str,
    pub(super) claim: &'static str,
    pub(super) place: &'static str,
    pub(super) criterion: String,
    /// What each cell's number is.
    pub(super) quantity: &'static str,
    pub(super) checks: Vec<Check<'a>>,
    /// Whether more than half of the cells are enough.
    pub(super) most: bool,
    /// Shown if the claim does not hold everywhere.
    pub(super) why: Option<&'static str>,
    /// Shown if there is nothing to look at.
    pub(super) missing: &'static str,
}

impl Rule<'_> {
    pub(super) fn judge(mut self) -> Claim {
        self.checks.retain(|c| c.value.is_finite());
        let all: Vec<&Check> = self.checks.iter().collect();
        let verdict = verdict(&all, self.most);
        let data: Vec<OnData> = data_sets(all.iter().map(|c| c.of))
            .into_iter()
            .map(|data| {
                let here: Vec<&Check> = all.iter().copied().filter(|c| c.of.data == data).collect();
                OnData {
                    data: data.into(),
                    verdict: self::verdict(&here, self.most),
                    passed: here.iter().filter(|c| c.pass).count(),
                    cells: here.len(),
                }
            })
            .collect();
        Claim {
            id: self.id,
            claim: self.claim,
            place: self.place,
            criterion: self.criterion.clone(),
            verdict,
            measured: self.measured(&data),
            why: self.why.filter(|_| matches!(verdict, Verdict::InPart | Verdict::DoesNotHold)),
            note: note(&data),
            data,
        }
    }

    /// The middle and the ends of the cells' numbers, and how many are good enough where.
    fn measured(&self, data: &[OnData]) -> String {
        let by_value = |a: &&Check, b: &&Check| a.value.total_cmp(&b.value);
        let low = self.checks.iter().min_by(by_value);
        let high = self.checks.iter().max_by(by_value);
        let (Some(low), Some(high)) = (low, high) else { return self.missing.into() };
        let several = data.len() > 1;
        let place = |c: &Check| {
            let data = paper::label(&c.of.data);
            if several && c.cell.is_empty() {
                data
            } else if several {
                format!("{data}, {}", c.cell)
            } else {
                c.cell.clone()
            }
        };
        let mut text = if self.checks.len() == 1 {
            format!("{}: {} ({}).", self.quantity, sig(low.value), place(low))
        } else {
            format!(
                "{}: median {}, from {} ({}) to {} ({}).",
                self.quantity,
                sig(median(self.checks.iter().map(|c| c.value).collect()).unwrap_or(f64::NAN)),
                sig(low.value),
                place(low),
                sig(high.value),
                place(high)
            )
        };
        let passed: usize = data.iter().map(|d| d.passed).sum();
        match (passed, self.checks.len()) {
            (1, 1) => text += " It meets the criterion",
            (0, 1) => text += " It does not meet the criterion",
            (p, n) if p == n => text += &format!(" All {n} cells meet the criterion"),
            (0, n) => text += &format!(" None of the {n} cells meets the criterion"),
            (p, n) => text += &format!(" {p} of {n} cells meet the criterion"),
        }
        // Where it fails is of interest only if it does not everywhere.
        if several && passed > 0 && passed < self.checks.len() {
            let each: Vec<String> = data
                .iter()
                .map(|d| format!("{} {}/{}", paper::label(&d.data), d.passed, d.cells))
                .collect();
            text += &format!(" ({})", each.join(", "));
        }
        text + "."
    }
}

fn verdict(checks: &[&Check], most: bool) -> Verdict {
    let passed = checks.iter().filter(|c| c.pass).count();
    match passed {
        _ if checks.is_empty() => Verdict::NotTested,
        p if p == checks.len() || (most && 2 * p > checks.len()) => Verdict::Holds,
        0 => Verdict::DoesNotHold,
        _ => Verdict::InPart,
    }
}

/// What a verdict cannot say: made-up data is not the paper's.
fn note(data: &[OnData]) -> Option<String> {
    let stand_ins: Vec<String> = data
        .iter()
        .filter(|d| paper::is_stand_in(&d.data))
        .map(|d| paper::label(&d.data).replace(" (stand-in)", ""))
        .collect();
    if stand_ins.is_empty() {
        None
    } else if stand_ins.len() == data.len() {
        Some("Measured on made-up stand-ins only, not on the paper’s data.".into())
    } else {
        Some(format!("Made-up data stands in for {}.", list(&stand_ins)))
    }
}

/// Two methods' means in the same cell, as ratios first / second, judged.
pub(super) fn ratios<'a>(
    cells: &[Cell<'a>],
    first: &str,
    second: &str,
    pass: impl Fn(f64) -> bool,
) -> Vec<Check<'a>> {
    let check = |(c, value): (&Cell<'a>, f64)| Check {
        of: c.of,
        cell: label(c.of),
        value,
        pass: pass(value),
    };
    pairs(cells, first, second).into_iter().map(check).collect()
}

/// A cell in words.
pub(super) fn label(r: &Record) -> String {
    let mut parts = Vec::new();
    if r.sweep.is_some() {
        parts.extend(r.sketch_rows.map(|l| format!("l = {l}")));
        parts.push(format!("n = {}", tick(r.rows as f64)));
        parts.push(format!("d = {}", tick(r.dim as f64)));
        parts.extend(r.tau.map(|tau| with_m("", Some(tau)).trim_start_matches(", ").to_string()));
    }
    parts.extend(r.bits.map(|b| format!("{b} bits")));
    parts.extend(r.round.map(|round| format!("round {round}")));
    parts.join(", ")
}

/// A line of a figure: one method, one data set, one m or code length, by growing x.
pub(super) struct Line<'a> {
    pub(super) of: &'a Record,
    pub(super) cell: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// All lines of at least two points of some methods.
pub(super) fn lines<'a>(
    cells: &[Cell<'a>],
    methods: &[&str],
    x: impl Fn(&Record) -> Option<f64>,
) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for cell in cells.iter().filter(|c| methods.contains(&c.of.method.as_str())) {
        let Some(x) = x(cell.of) else { continue };
        let r = cell.of;
        let id = |r: &Record| (r.data.clone(), r.method.clone(), r.tau, r.bits);
        match lines.iter_mut().find(|l| id(l.of) == id(r)) {
            Some(line) => line.points.push((x, cell.mean)),
            None => {
                let mut name = with_m(&r.method, r.tau);
                name += &r.bits.map_or(String::new(), |b| format!(", {b} bits"));
                lines.push(Line { of: r, cell: name, points: vec![(x, cell.mean)] });
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        line.points.dedup_by_key(|p| p.0);
    }
    lines.retain(|l| l.points.len() > 1);
    lines
}

impl<'a> Line<'a> {
    /// Judges the line by its last value over its first and by the factors of its steps.
    pub(super) fn trend(self, pass: impl Fn(f64, &[f64]) -> bool) -> Check<'a> {
        let steps: Vec<f64> = self.points.windows(2).map(|w| w[1].1 / w[0].1).collect();
        let value = self.points[self.points.len() - 1].1 / self.points[0].1;
        Check { of: self.of, cell: self.cell, value, pass: pass(value, &steps) }
    }

    /// Judges the line by its slope where both axes are logarithmic.
    pub(super) fn slope(self, pass: impl Fn(f64) -> bool) -> Check<'a> {
        let logs: Vec<(f64, f64)> = self.points.iter().map(|p| (p.0.ln(), p.1.ln())).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().fold((0.0, 0.0), |m, p| (m.0 + p.0 / n, m.1 + p.1 / n));
        let across: f64 = logs.iter().map(|p| (p.0 - mean.0) * (p.1 - mean.1)).sum();
        let value = across / logs.iter().map(|p| (p.0 - mean.0).powi(2)).sum::<f64>();
        Check { of: self.of, cell: self.cell, value, pass: pass(value) }
    }
}

/// Puts a method's name in front of each cell's.
pub(super) fn named<'a>(method: &str, mut checks: Vec<Check<'a>>) -> Vec<Check<'a>> {
    for check in &mut checks {
        check.cell = format!("{method}, {}", check.cell);
    }
    checks
}
