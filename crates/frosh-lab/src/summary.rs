//! Records put together: repeats of a cell become its mean, with the smallest and the largest.
//!
//! The paper averages ten runs and shows no spread; the figures here show the range over repeats, since for a handful
//! of repeats it says more than a deviation. Records whose measurement is missing or not finite are left out.
//! One pass over the records for each question; there are a few thousand at most.

use crate::paper;
use crate::results::{Record, Results};
use std::collections::BTreeMap;

/// Not a method: the time that a learned rotation adds to OSH, FROSH and DFROSH.
pub(crate) const ITQ: &str = "ITQ";

/// Methods in the order in which every figure and table has them.
pub(crate) const METHODS: [&str; 11] =
    ["FD", "FFD", "LSH", "OSH", "FROSH", "DFROSH", "SGH", "OCH-style", "PCA", "PCA-RR", "PCA-ITQ"];

/// One cell of a figure: what was chosen (in any of its records), and what came out.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) of: &'a Record,
    pub(crate) repeats: usize,
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Which measurement.
pub(crate) type Measure = fn(&Record) -> Option<f64>;

/// The cells of an experiment, in a fixed order.
pub(crate) fn cells<'a>(results: &'a Results, experiment: &str, measure: Measure) -> Vec<Cell<'a>> {
    let mut groups: BTreeMap<_, Vec<(&Record, f64)>> = BTreeMap::new();
    for record in results.records.iter().filter(|r| r.experiment == experiment) {
        if let Some(value) = measure(record).filter(|v| v.is_finite()) {
            groups.entry(key(record)).or_default().push((record, value));
        }
    }
    let cell = |group: Vec<(&'a Record, f64)>| {
        let values = || group.iter().map(|(_, v)| *v);
        Cell {
            of: group[0].0,
            repeats: group.len(),
            mean: values().sum::<f64>() / group.len() as f64,
            low: values().fold(f64::INFINITY, f64::min),
            high: values().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    groups.into_values().map(cell).collect()
}

/// Two methods' means in the same cells: the first's cell, and first / second.
pub(crate) fn pairs<'c, 'a>(
    cells: &'c [Cell<'a>],
    first: &str,
    second: &str,
) -> Vec<(&'c Cell<'a>, f64)> {
    let pair = |c: &'c Cell<'a>| {
        let other = cells.iter().rev().find(|o| o.of.method == second && same(c.of, o.of))?;
        Some((c, c.mean / other.mean)).filter(|(_, ratio)| ratio.is_finite())
    };
    cells.iter().filter(|c| c.of.method == first).filter_map(pair).collect()
}

/// Whether records of two methods are one cell. FD has no m; rounds and batch methods may count other rows.
fn same(a: &Record, b: &Record) -> bool {
    let point = |r: &Record| r.sweep.is_some().then_some((r.rows, r.dim, r.sketch_rows));
    (&a.data, &a.sweep, a.bits, a.round) == (&b.data, &b.sweep, b.bits, b.round)
        && point(a) == point(b)
}

/// A record and its curve, by growing recall.
type Curve<'a> = (&'a Record, Vec<[f64; 2]>);

/// Mean curves of a precision-recall experiment: a record, (recall, mean, low, high) on a common grid, and the
/// number of repeats.
pub(crate) fn curves(results: &Results) -> Vec<(&Record, Vec<[f64; 4]>, usize)> {
    let mut groups: BTreeMap<_, Vec<Curve>> = BTreeMap::new();
    for record in results.records.iter().filter(|r| r.experiment == "precision-recall") {
        let mut curve = record.curve.clone().unwrap_or_default();
        curve.retain(|p| p.iter().all(|v| (0.0..=1.0).contains(v)));
        curve.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if curve.len() > 1 {
            groups.entry(key(record)).or_default().push((record, curve));
        }
    }
    let mean = |group: Vec<Curve>| {
        let grid = (0..=100).map(|i| f64::from(i) / 100.0);
        let points = grid.filter_map(|recall| {
            let at: Vec<f64> = group.iter().filter_map(|(_, c)| interpolate(c, recall)).collect();
            // Only where every repeat has the curve: else the mean would jump where one ends.
            (at.len() == group.len()).then(|| {
                let low = at.iter().copied().fold(f64::INFINITY, f64::min);
                let high = at.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                [recall, at.iter().sum::<f64>() / at.len() as f64, low, high]
            })
        });
        points.collect::<Vec<_>>()
    };
    groups
        .into_values()
        .map(|group| {
            let (record, repeats) = (group[0].0, group.len());
            (record, mean(group), repeats)
        })
        .collect()
}

/// The data sets of cells: the paper's in its order, then others by name.
pub(crate) fn data_sets<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<&'a str> {
    let mut names: Vec<&str> = records.into_iter().map(|r| r.data.as_str()).collect();
    names.sort_by_key(|n| (paper::set(n).is_none(), paper::set(n), *n));
    names.dedup();
    names
}

/// The methods of records, in the common order, then others by name.
pub(crate) fn methods<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<&'a str> {
    let mut names: Vec<&str> = records.into_iter().map(|r| r.method.as_str()).collect();
    names.sort_by_key(|n| (METHODS.iter().position(|m| m == n).unwrap_or(usize::MAX), *n));
    names.dedup();
    names
}

/// A method's name as the page prints it (not escaped).
pub(crate) fn method_label(method: &str) -> &str {
    if method == ITQ { "+ ITQ" } else { method }
}

/// The code lengths of records.
pub(crate) fn bits<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<u32> {
    let mut all: Vec<u32> = records.into_iter().filter_map(|r| r.bits).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The middle one of some numbers.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let middle = values.get(n / 2)?;
    Some(if n.is_multiple_of(2) { (middle + values[n / 2 - 1]) / 2.0 } else { *middle })
}

/// A curve's precision at a recall inside of it.
fn interpolate(curve: &[[f64; 2]], recall: f64) -> Option<f64> {
    let after = curve.iter().position(|p| p[0] >= recall)?;
    let [x1, y1] = curve[after];
    let Some([x0, y0]) = after.checked_sub(1).map(|i| curve[i]) else {
        return (x1 - recall < 1e-9).then_some(y1);
    };
    Some(if x1 > x0 { y0 + (y1 - y0) * (recall - x0) / (x1 - x0) } else { y1 })
}

/// Everything that was chosen, apart from the repeat; what is swept comes late, so that cells are in its order.
#[allow(clippy::type_complexity)]
fn key(
    r: &Record,
) -> (
    &str,
    &str,
    Option<&str>,
    Option<u32>,
    Option<u32>,
    Option<u32>,
    Option<u64>,
    u64,
    u64,
    Option<u64>,
) {
    let method = r.method.as_str();
    let sweep = r.sweep.as_deref();
    (&r.data, method, sweep, r.tau, r.bits, r.round, r.sketch_rows, r.rows, r.dim, r.block_rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(repeat: u32, map: f64) -> Record {
        Record { experiment: "bits".into(), repeat, map: Some(map), ..Record::default() }
    }

    #[test]
    fn repeats_become_one_cell_without_what_is_not_finite() {
        let records = vec![record(0, 0.25), record(1, 0.75), record(2, f64::NAN)];
        let results = Results { records, ..Results::default() };
        let cells = cells(&results, "bits", |r| r.map);
        assert_eq!(cells.len(), 1);
        let cell = &cells[0];
        assert_eq!((cell.repeats, cell.mean, cell.low, cell.high), (2, 0.5, 0.25, 0.75));
    }

    #[test]
    fn curves_are_averaged_where_all_repeats_have_them() {
        let curve = |repeat, points: &[[f64; 2]]| Record {
            experiment: "precision-recall".into(),
            repeat,
            curve: Some(points.to_vec()),
            ..Record::default()
        };
        let records = vec![
            curve(0, &[[0.0, 1.0], [1.0, 0.0]]),
            curve(1, &[[0.5, 1.0], [1.0, 0.5], [f64::NAN, 0.0]]),
            curve(2, &[[0.5, f64::INFINITY]]),
        ];
        let results = Results { records, ..Results::default() };
        let all = curves(&results);
        assert_eq!(all.len(), 1);
        let (_, points, repeats) = &all[0];
        assert_eq!((*repeats, points.len()), (2, 51));
        assert_eq!(points[0], [0.5, 0.75, 0.5, 1.0]);
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![3.0, 1.0, 9.0]), Some(3.0));
    }
}
