//! Records put together: repeats of a cell become its mean, with the smallest and the largest.
//!
//! A cell is one point of a figure. The paper averages ten runs and shows no spread; here the range over repeats is
//! shown, since for a few repeats it says more than a deviation. Records whose measurement is missing or not finite are
//! left out.

use crate::paper;
use crate::results::{Record, Results};
use std::collections::BTreeMap;

/// Methods in the order in which every figure and table has them.
#[rustfmt::skip] // A table.
const METHODS: [&str; 16] = [
    "FD", "FFD", "LSH", "OSH", "FROSH", "DFROSH", "SGH", "OCH-style", "PCA", "PCA-RR", "PCA-ITQ",
    "frozen", "encode all", "mixed", "versions", "when due",
];

/// One point: what was chosen (in any of its records), its horizontal coordinate, and what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) of: &'a Record,
    pub(crate) x: f64,
    pub(crate) repeats: usize,
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl<'a> Cell<'a> {
    fn new(of: &'a Record, x: f64, values: &[f64]) -> Self {
        let (low, high) = range(values.iter().copied()).unwrap_or((f64::NAN, f64::NAN));
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Cell { of, x, repeats: values.len(), mean, low, high }
    }
}

/// Which measurement.
pub(crate) type Measure = fn(&Record) -> Option<f64>;

/// The records of an experiment with a measurement, one of each cell with the values of all of its repeats.
fn repeats<'a>(
    results: &'a Results,
    experiment: &str,
    measure: impl Fn(&Record) -> Option<f64>,
) -> impl Iterator<Item = (&'a Record, Vec<f64>)> {
    let mut groups: BTreeMap<String, (&Record, Vec<f64>)> = BTreeMap::new();
    for record in results.records.iter().filter(|r| r.experiment == experiment) {
        if let Some(value) = measure(record).filter(|v| v.is_finite()) {
            groups.entry(record.chosen()).or_insert((record, Vec::new())).1.push(value);
        }
    }
    groups.into_values()
}

/// The cells of an experiment by growing x: the swept size, the round, or the code length.
pub(crate) fn cells<'a>(results: &'a Results, experiment: &str, measure: Measure) -> Vec<Cell<'a>> {
    let x = |r: &Record| match r.sweep.as_deref() {
        Some(sweep) => size(r, sweep),
        None => r.round.or(r.bits).map(f64::from),
    };
    let groups = repeats(results, experiment, measure);
    let mut cells: Vec<Cell> =
        groups.filter_map(|(of, values)| Some(Cell::new(of, x(of)?, &values))).collect();
    cells.sort_by(|a, b| a.x.total_cmp(&b.x));
    cells
}

/// The precision-recall curves: a cell for each hundredth of recall.
pub(crate) fn curves(results: &Results) -> Vec<Cell<'_>> {
    let at = |recall: f64| {
        let groups = repeats(results, "precision-recall", move |r| interpolate(&curve(r), recall));
        groups.map(move |(of, values)| Cell::new(of, recall, &values))
    };
    (0..=100).map(|i| f64::from(i) / 100.0).flat_map(at).collect()
}

/// The area under a record's precision-recall curve; the precision of the first row returned counts from recall 0.
pub(crate) fn area(record: &Record) -> Option<f64> {
    let curve = curve(record);
    let trapezoid = |w: &[[f64; 2]]| (w[1][0] - w[0][0]) * (w[0][1] + w[1][1]) / 2.0;
    let first = curve.first().map(|p| p[0] * p[1])?;
    Some(first + curve.windows(2).map(trapezoid).sum::<f64>())
}

/// A record's points (recall, precision) by growing recall.
fn curve(record: &Record) -> Vec<[f64; 2]> {
    let points =
        record.returned.iter().flatten().map(|[_, recall, precision]| [*recall, *precision]);
    let mut curve: Vec<_> = points.filter(|p| p.iter().all(|v| (0.0..=1.0).contains(v))).collect();
    curve.sort_by(|a, b| a[0].total_cmp(&b[0]));
    curve
}

/// A curve's precision at a recall up to its last one.
fn interpolate(curve: &[[f64; 2]], recall: f64) -> Option<f64> {
    let after = curve.iter().position(|p| p[0] >= recall)?;
    let [x1, y1] = curve[after];
    let [x0, y0] = curve[after.saturating_sub(1)];
    Some(if x1 > x0 { y0 + (y1 - y0) * (recall - x0) / (x1 - x0) } else { y1 })
}

/// Two methods' means at the same point: first / second, for each m of either. The cell is the one that has an m.
pub(crate) fn ratios<'a>(cells: &[Cell<'a>], first: &str, second: &str) -> Vec<(Cell<'a>, f64)> {
    let mut all = Vec::new();
    for a in cells.iter().filter(|c| c.of.method == first) {
        for b in cells.iter().filter(|c| c.of.method == second && same_point(a.of, c.of)) {
            let cell = if b.of.tau.is_some() { b } else { a };
            all.push((cell.clone(), a.mean / b.mean));
        }
    }
    all.retain(|(_, ratio)| ratio.is_finite());
    all
}

/// Whether records of two methods belong together. Outside of sweeps, rows are not compared: methods may count them
/// differently.
pub(crate) fn same_point(a: &Record, b: &Record) -> bool {
    let point = |r: &Record| r.sweep.is_some().then_some((r.rows, r.dim, r.sketch_rows));
    (&a.data, &a.sweep, a.bits, a.round) == (&b.data, &b.sweep, b.bits, b.round)
        && point(a) == point(b)
}

/// A size that the sketch experiment sweeps, by its name in the paper.
pub(crate) fn size(record: &Record, name: &str) -> Option<f64> {
    match name {
        "l" => record.sketch_rows.map(|v| v as f64),
        "n" => Some(record.rows as f64),
        "d" => Some(record.dim as f64),
        _ => None,
    }
}

/// The data sets of records: the paper's in its order, then others by name.
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

/// The code lengths of records.
pub(crate) fn bits<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<u32> {
    let mut all: Vec<u32> = records.into_iter().filter_map(|r| r.bits).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The median of some numbers.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let middle = values.get(n / 2)?;
    Some(if n.is_multiple_of(2) { (middle + values[n / 2 - 1]) / 2.0 } else { *middle })
}

/// The smallest and the largest of some numbers.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().map(|v| (v, v)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(repeat: u32, map: f64) -> Record {
        let (experiment, bits) = ("bits".into(), Some(32));
        Record { experiment, bits, repeat, map: Some(map), ..Record::default() }
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
    fn curves_are_averaged_at_each_hundredth_of_recall() {
        let curve = |repeat, points: &[[f64; 3]]| Record {
            experiment: "precision-recall".into(),
            repeat,
            returned: Some(points.to_vec()),
            ..Record::default()
        };
        let records = vec![
            curve(0, &[[1.0, 0.1, 1.0], [9.0, 1.0, 0.1]]),
            curve(1, &[[1.0, 0.1, 0.5], [2.0, f64::NAN, 0.0], [9.0, 1.0, 0.5]]),
            curve(2, &[[1.0, 0.5, f64::INFINITY]]),
        ];
        assert!((area(&records[0]).unwrap() - (0.1 + 0.9 * 1.1 / 2.0)).abs() < 1e-12);
        let results = Results { records, ..Results::default() };
        let all = curves(&results);
        // The first precision counts from recall 0; what is no share is left out.
        assert_eq!((all.len(), all[0].repeats), (101, 2));
        assert_eq!((all[0].x, all[0].mean, all[0].low, all[0].high), (0.0, 0.75, 0.5, 1.0));
        assert_eq!((all[50].x, all[50].low), (0.5, 0.5));
        assert!((all[50].high - 0.6).abs() < 1e-12);
        assert!((all[100].mean - 0.3).abs() < 1e-12);
    }

    #[test]
    fn every_m_has_a_ratio_of_its_own() {
        let record = |method: &str, tau, seconds| Record {
            experiment: "sketch".into(),
            method: method.into(),
            sweep: Some("n".into()),
            rows: 9,
            tau,
            seconds: Some(seconds),
            ..Record::default()
        };
        let records =
            vec![record("FD", None, 8.0), record("FFD", Some(1), 4.0), record("FFD", Some(8), 1.0)];
        let results = Results { records, ..Results::default() };
        let cells = cells(&results, "sketch", |r| r.seconds);
        for (first, second, want) in [("FD", "FFD", [2.0, 8.0]), ("FFD", "FD", [0.5, 0.125])] {
            let found = ratios(&cells, first, second);
            let found: Vec<_> = found.iter().map(|(cell, ratio)| (cell.of.tau, *ratio)).collect();
            assert_eq!(found, [(Some(1), want[0]), (Some(8), want[1])]);
        }
    }

    #[test]
    fn medians_and_ranges() {
        assert_eq!((median(vec![]), range([])), (None, None));
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![3.0, 1.0, 9.0]), Some(3.0));
        assert_eq!(range([3.0, 1.0, 9.0]), Some((1.0, 9.0)));
    }
}
