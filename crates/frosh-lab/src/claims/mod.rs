//! The paper's claims, one by one, against what was measured.
//!
//! Section 5 of the paper states its findings in words ("comparable", "a large margin", "slightly"). `table.rs` has each
//! with a number in its place, so that a verdict does not depend on who looks at a figure. Where the words sum up the
//! paper's own Table 2, the bound is that table's: a run that repeats the table must not fail.
//!
//! A claim is checked cell by cell (a data set, a code length, a round, a point of a sweep), each with the mean over
//! repeats; `check.rs` has the tests. Real data and stand-ins get a verdict each. Where a claim fails and the reason is
//! known, it is given. Figures' values are not known from the paper, so no MAP is compared with the paper's.

mod check;
mod table;

#[cfg(test)]
mod tests;

use crate::paper;
use crate::results::Results;
use crate::summary::{data_sets, median};
use crate::text::sig;
use check::{Check, Test};
use serde::Serialize;

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every cell meets the criterion (or, for a claim on most cells, more than half).
    Holds,
    /// At least 90 % of the cells do.
    HoldsInMost,
    /// Fewer do.
    InPart,
    /// No cell does (or, for a claim on most cells, half or fewer).
    DoesNotHold,
    /// There are no such measurements.
    NotTested,
    /// The run was made at a reduced size.
    TooSmall,
}

impl Verdict {
    /// All, from the best to none.
    pub const ALL: [Verdict; 6] = [
        Verdict::Holds,
        Verdict::HoldsInMost,
        Verdict::InPart,
        Verdict::DoesNotHold,
        Verdict::NotTested,
        Verdict::TooSmall,
    ];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInMost => "holds in most cells",
            Verdict::InPart => "holds in part",
            Verdict::DoesNotHold => "does not hold",
            Verdict::NotTested => "cannot be tested here",
            Verdict::TooSmall => "too small to judge",
        }
    }
}

/// A verdict and the cells behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// What came of it.
    pub verdict: Verdict,
    /// Cells that meet the criterion.
    pub passed: usize,
    /// Cells checked.
    pub cells: usize,
}

/// A claim of the paper, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// A short name that stays.
    pub id: &'static str,
    /// The claim, in our words.
    pub claim: &'static str,
    /// Where the paper makes it.
    pub place: &'static str,
    /// What must be so in every cell, fixed before measuring.
    pub criterion: String,
    /// On real data, and on the synthetic matrix that the paper defines.
    pub real: Outcome,
    /// On made-up data in a set's place, if there is any.
    pub stand_ins: Option<Outcome>,
    /// Each data set on its own: its name, cells that meet the criterion, cells checked.
    pub data: Vec<(String, usize, usize)>,
    /// The numbers.
    pub measured: String,
    /// What limits the verdict, and why cells fail, where that is known.
    pub notes: Vec<String>,
}

/// How many claims came out how: (verdict, on real data, on stand-ins), without verdicts that do not occur.
pub fn tally(claims: &[Claim]) -> Vec<(Verdict, usize, usize)> {
    let count = |verdict| {
        let of = |outcome: fn(&Claim) -> Option<Outcome>| {
            claims.iter().filter_map(outcome).filter(|o| o.verdict == verdict).count()
        };
        (verdict, of(|c| Some(c.real)), of(|c| c.stand_ins))
    };
    let all = Verdict::ALL.into_iter().map(count);
    all.filter(|(_, real, stand_ins)| real + stand_ins > 0).collect()
}

/// Every claim of the paper's experiments, in its order.
pub fn claims(results: &Results) -> Vec<Claim> {
    table::rules().into_iter().map(|rule| rule.judge(results)).collect()
}

/// A claim with its criterion.
struct Rule {
    id: &'static str,
    claim: &'static str,
    place: &'static str,
    /// For the reader; `{low}` and `{high}` are the bounds.
    criterion: &'static str,
    /// What each cell's number is.
    quantity: &'static str,
    test: Test,
    /// The smallest and the largest number that meet the criterion.
    bounds: (f64, f64),
    /// Why cells may fail.
    why: &'static str,
}

impl Rule {
    fn judge(self, results: &Results) -> Claim {
        let mut checks = self.test.checks(results, self.bounds);
        checks.retain(|c| c.value.is_finite());
        let (stand_ins, real): (Vec<_>, Vec<_>) =
            checks.iter().partition(|c| paper::is_stand_in(&c.of.data));
        let outcome = |checks: &[&Check]| self.outcome(checks, results.run.quick);
        let share = |data: &str| {
            let here = checks.iter().filter(|c| c.of.data == data);
            (data.to_owned(), here.clone().filter(|c| c.pass).count(), here.count())
        };
        let data: Vec<_> = data_sets(checks.iter().map(|c| c.of)).into_iter().map(share).collect();
        Claim {
            id: self.id,
            claim: self.claim,
            place: self.place,
            criterion: self
                .criterion
                .replace("{low}", &short(self.bounds.0))
                .replace("{high}", &short(self.bounds.1)),
            real: outcome(&real),
            stand_ins: (!stand_ins.is_empty()).then(|| outcome(&stand_ins)),
            measured: self.measured(&real, &stand_ins, &data),
            notes: self.notes(&real, &stand_ins),
            data,
        }
    }

    fn outcome(&self, checks: &[&Check], quick: bool) -> Outcome {
        let (passed, cells) = (checks.iter().filter(|c| c.pass).count(), checks.len());
        let verdict = match passed {
            _ if cells == 0 => Verdict::NotTested,
            _ if quick => Verdict::TooSmall,
            p if self.test.most_are_enough() && 2 * p > cells => Verdict::Holds,
            _ if self.test.most_are_enough() => Verdict::DoesNotHold,
            p if p == cells => Verdict::Holds,
            0 => Verdict::DoesNotHold,
            p if 10 * p >= 9 * cells => Verdict::HoldsInMost,
            _ => Verdict::InPart,
        };
        Outcome { verdict, passed, cells }
    }

    /// The median and the ends of the cells' numbers, and which data sets fail.
    fn measured(
        &self,
        real: &[&Check],
        stand_ins: &[&Check],
        data: &[(String, usize, usize)],
    ) -> String {
        let several = data.len() > 1;
        let place = |c: &Check| match (several, c.cell.is_empty()) {
            (false, _) => c.cell.clone(),
            (true, true) => paper::label(&c.of.data),
            (true, false) => format!("{}, {}", paper::label(&c.of.data), c.cell),
        };
        let numbers = |checks: &[&Check]| -> Option<String> {
            let low = checks.iter().min_by(|a, b| a.value.total_cmp(&b.value))?;
            let high = checks.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
            let median = sig(median(checks.iter().map(|c| c.value).collect())?);
            Some(match checks.len() {
                1 => format!("{median} ({})", place(low)),
                _ => format!(
                    "median {median}, from {} ({}) to {} ({})",
                    sig(low.value),
                    place(low),
                    sig(high.value),
                    place(high)
                ),
            })
        };
        let mut text = match (numbers(real), numbers(stand_ins)) {
            (None, None) => return self.test.missing().into(),
            (Some(real), None) => format!("{}: {real}.", self.quantity),
            (None, Some(made)) => format!("{}, on stand-ins only: {made}.", self.quantity),
            (Some(real), Some(made)) => {
                format!("{}, on real data: {real}. On stand-ins: {made}.", self.quantity)
            }
        };
        if several && data.iter().any(|d| d.1 < d.2) {
            let each = data.iter().map(|d| format!("{} {}/{}", paper::label(&d.0), d.1, d.2));
            text += &format!(" Cells that meet it: {}.", each.collect::<Vec<_>>().join(", "));
        }
        text
    }

    fn notes(&self, real: &[&Check], stand_ins: &[&Check]) -> Vec<String> {
        let failed: Vec<_> = real.iter().chain(stand_ins).filter(|c| !c.pass).collect();
        let mut notes = Vec::new();
        if failed.is_empty() {
            return notes;
        }
        if !self.why.is_empty() {
            notes.push(self.why.into());
        }
        if real.iter().all(|c| c.pass) && !real.is_empty() {
            notes.push("It fails on stand-ins only.".into());
        }
        let och = failed.iter().filter(|c| c.och).count();
        if och > 0 {
            let whose = if och == failed.len() { "All".into() } else { format!("{och} of the") };
            notes.push(format!(
                "{whose} {} cells that fail compare with our own OCH-style, not with the authors’ program.",
                failed.len()
            ));
        }
        notes
    }
}

/// A bound, in as many digits as it has.
fn short(bound: f64) -> String {
    sig(bound).trim_end_matches('0').trim_end_matches('.').into()
}
