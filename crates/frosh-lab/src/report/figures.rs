//! The paper's figures, from records.
//!
//! Figures 2 and 3 (error and time of FD and FFD over l, n and d), 4 (MAP after each round), 5 (MAP over code lengths),
//! 6 (precision and recall), and Table 2's training times as a dot plot of ratios. A figure whose experiment has no
//! records is not there. Where the paper has one line for FFD, we have one for each m.

use crate::paper;
use crate::plot::{
    Axis, Dots, Drawing, Figure, Kind, Panel, Point, Row, Series, Style, style, with_tau,
};
use crate::results::{Record, Results};
use crate::summary::{self, Cell, Measure, cells};
use crate::text::{count, factor, sig};

/// The paper's figures in its order: the id, the title, and the experiment that it is made from.
pub(super) const FIGURES: [(&str, &str, &str); 6] = [
    ("figure-2", "Figure 2. Relative error of FD and FFD", "sketch"),
    ("figure-3", "Figure 3. Time of FD and FFD", "sketch"),
    ("figure-4", "Figure 4. MAP after each of ten rounds", "rounds"),
    ("figure-5", "Figure 5. MAP over code lengths", "bits"),
    ("figure-6", "Figure 6. Precision and recall", "precision-recall"),
    ("table-2", "Table 2. Training time", "train-time"),
];

/// A figure by its id, if there are records for it.
pub(super) fn figure(results: &Results, id: &str) -> Option<Figure> {
    let (id, title, _) = *FIGURES.iter().find(|f| f.0 == id)?;
    let (columns, panels) = match id {
        "figure-2" => (3, sketch(results, |r| r.relative_error, "relative error")),
        "figure-3" => (3, sketch(results, |r| r.seconds, "time (s)")),
        "figure-4" => (3, rounds(results)),
        "figure-5" => (2, bits(results)),
        "figure-6" => (2, curves(results)),
        _ => (2, times(results)),
    };
    let legend = if id == "table-2" {
        let ours = style("FROSH");
        vec![("measured".into(), ours), ("the paper’s".into(), Style { hollow: true, ..ours })]
    } else {
        Vec::new()
    };
    (!panels.is_empty()).then_some(Figure { id, title, columns, panels, legend })
}

/// What is swept, as a number.
pub(crate) fn swept(record: &Record, sweep: &str) -> Option<f64> {
    match sweep {
        "l" => record.sketch_rows.map(|v| v as f64),
        "n" => Some(record.rows as f64),
        "d" => Some(record.dim as f64),
        _ => None,
    }
}

fn sketch(results: &Results, measure: Measure, label: &str) -> Vec<Drawing> {
    let all = cells(results, "sketch", measure);
    let mut panels = Vec::new();
    for data in summary::data_sets(all.iter().map(|c| c.of)) {
        let of_data: Vec<&Cell> = all.iter().filter(|c| c.of.data == data).collect();
        let range = Kind::Log.range(of_data.iter().flat_map(|c| [c.mean, c.low, c.high]));
        for (sweep, name) in
            [("l", "rows of the sketch, l"), ("n", "rows of data, n"), ("d", "dimensions, d")]
        {
            let chosen: Vec<&Cell> =
                of_data.iter().copied().filter(|c| c.of.sweep.as_deref() == Some(sweep)).collect();
            if chosen.is_empty() {
                continue;
            }
            let mut series = Vec::new();
            for method in summary::methods(chosen.iter().map(|c| c.of)) {
                let mut taus: Vec<_> =
                    chosen.iter().filter(|c| c.of.method == method).map(|c| c.of.tau).collect();
                taus.sort_unstable();
                taus.dedup();
                for tau in taus {
                    let line = chosen.iter().filter(|c| c.of.method == method && c.of.tau == tau);
                    series.push(Series {
                        label: with_m(method, tau),
                        style: with_tau(method, tau),
                        points: points(line.copied(), |r| swept(r, sweep), name),
                    });
                }
            }
            let x = axis(name, Kind::Log, ticks(&series));
            let y = Axis { range: Some(range), ..axis(label, Kind::Log, Vec::new()) };
            let title = if data == "synthetic" {
                format!("over {sweep}")
            } else {
                format!("{}, over {sweep}", paper::label(data))
            };
            let fixed = fixed(chosen.iter().map(|c| c.of), sweep);
            panels.push(Drawing::Lines(Panel { title, fixed, x, y, series }));
        }
    }
    panels
}

fn rounds(results: &Results) -> Vec<Drawing> {
    let all = cells(results, "rounds", |r| r.map);
    let mut panels = Vec::new();
    for data in summary::data_sets(all.iter().map(|c| c.of)) {
        let of_data: Vec<&Cell> = all.iter().filter(|c| c.of.data == data).collect();
        // One range for a data set, so that code lengths can be compared by eye.
        let range = Kind::Linear.range(of_data.iter().flat_map(|c| [c.mean, c.low, c.high]));
        for bits in summary::bits(of_data.iter().map(|c| c.of)) {
            let chosen: Vec<&Cell> =
                of_data.iter().copied().filter(|c| c.of.bits == Some(bits)).collect();
            let series = by_method(&chosen, |r| r.round.map(f64::from), "round");
            let last = ticks(&series).last().copied().unwrap_or(10.0);
            let x = Axis {
                range: Some((0.5, last + 0.5)),
                ..axis("round", Kind::Linear, ticks(&series))
            };
            let y = Axis { range: Some(range), ..axis("MAP", Kind::Linear, Vec::new()) };
            let fixed = sizes(chosen.iter().map(|c| c.of));
            let title = format!("{}, {bits} bits", paper::label(data));
            panels.push(Drawing::Lines(Panel { title, fixed, x, y, series }));
        }
    }
    panels
}

fn bits(results: &Results) -> Vec<Drawing> {
    let all = cells(results, "bits", |r| r.map);
    let panel = |data: &str| {
        let chosen: Vec<&Cell> = all.iter().filter(|c| c.of.data == data).collect();
        let series = by_method(&chosen, |r| r.bits.map(f64::from), "bits");
        Drawing::Lines(Panel {
            title: paper::label(data),
            fixed: sizes(chosen.iter().map(|c| c.of)),
            x: axis("bits of a code, r", Kind::Log, ticks(&series)),
            y: axis("MAP", Kind::Linear, Vec::new()),
            series,
        })
    };
    summary::data_sets(all.iter().map(|c| c.of)).into_iter().map(panel).collect()
}

fn curves(results: &Results) -> Vec<Drawing> {
    let all = summary::curves(results);
    let mut panels = Vec::new();
    for data in summary::data_sets(all.iter().map(|c| c.0)) {
        let of_data: Vec<_> = all.iter().filter(|c| c.0.data == data).collect();
        // The paper shows 128 bits; where that was not run, the longest codes are nearest to it.
        let lengths = summary::bits(of_data.iter().map(|c| c.0));
        let Some(&length) = lengths.iter().find(|b| **b == 128).or(lengths.last()) else {
            continue;
        };
        let mut series = Vec::new();
        for method in summary::methods(of_data.iter().map(|c| c.0)) {
            let found = of_data.iter().find(|c| c.0.method == method && c.0.bits == Some(length));
            let Some((_, curve, repeats)) = found else { continue };
            // A marker at each fifth, shifted from method to method so that curves which overlap show all of theirs.
            let shift = 3 + 2 * series.len() % 18;
            let point = |(i, [recall, mean, low, high]): (usize, &[f64; 4])| Point {
                x: *recall,
                y: *mean,
                low: *low,
                high: *high,
                note: if i % 20 == shift {
                    format!(
                        "{method}: precision {} at recall {}{}",
                        sig(*mean),
                        sig(*recall),
                        spread(*low, *high, *repeats)
                    )
                } else {
                    String::new()
                },
            };
            let points = curve.iter().enumerate().map(point).collect();
            series.push(Series { label: method.into(), style: style(method), points });
        }
        let unit =
            |label: &str| Axis { range: Some((0.0, 1.0)), ..axis(label, Kind::Linear, Vec::new()) };
        let title = format!("{}, {length} bits", paper::label(data));
        let fixed = sizes(of_data.iter().map(|c| c.0));
        let (x, y) = (unit("recall"), unit("precision"));
        panels.push(Drawing::Lines(Panel { title, fixed, x, y, series }));
    }
    panels
}

fn times(results: &Results) -> Vec<Drawing> {
    let all: Vec<Cell> =
        cells(results, "train-time", |r| r.seconds).into_iter().filter(|c| c.mean > 0.0).collect();
    let mut panels = Vec::new();
    for data in summary::data_sets(all.iter().map(|c| c.of)) {
        let of_data: Vec<&Cell> = all.iter().filter(|c| c.of.data == data).collect();
        let mut rows = Vec::new();
        for method in
            summary::methods(of_data.iter().map(|c| c.of)).into_iter().filter(|m| *m != "FROSH")
        {
            for bits in summary::bits(of_data.iter().map(|c| c.of)) {
                let find = |m: &str| {
                    of_data.iter().rev().find(|c| c.of.method == m && c.of.bits == Some(bits))
                };
                let value = find(method)
                    .zip(find("FROSH"))
                    .map(|(a, b)| (a.mean / b.mean, a.low / b.mean, a.high / b.mean));
                let of_paper = |m| paper::set(data).and_then(|s| paper::seconds(s, m, bits));
                let paper = of_paper(method).zip(of_paper("FROSH")).map(|(a, b)| a / b);
                let note = value.map_or(String::new(), |v| {
                    format!("{method}, {bits} bits: {} times FROSH's time", factor(v.0))
                });
                let (group, name) = (summary::method_label(method).to_string(), bits.to_string());
                if value.is_some() {
                    rows.push(Row { group, name, style: style(method), value, paper, note });
                }
            }
        }
        if !rows.is_empty() {
            let fixed = sizes(of_data.iter().map(|c| c.of));
            let x = axis("time / FROSH's time", Kind::Log, Vec::new());
            panels.push(Dots { title: paper::label(data), fixed, x, rows });
        }
    }
    // One range for all, so that data sets can be compared by eye.
    let values = panels.iter().flat_map(|p| &p.rows).flat_map(|r| {
        let (mean, low, high) = r.value.unwrap_or((1.0, 1.0, 1.0));
        [mean, low, high, r.paper.unwrap_or(1.0), 1.0]
    });
    let range = Kind::Log.range(values.collect::<Vec<_>>());
    panels.iter_mut().for_each(|p| p.x.range = Some(range));
    panels.into_iter().map(Drawing::Dots).collect()
}

fn axis(label: &str, kind: Kind, at: Vec<f64>) -> Axis {
    Axis { label: label.into(), kind, range: None, at }
}

/// One line for each method.
fn by_method(cells: &[&Cell], x: impl Fn(&Record) -> Option<f64>, name: &str) -> Vec<Series> {
    let line = |method: &str| Series {
        label: method.into(),
        style: style(method),
        points: points(cells.iter().copied().filter(|c| c.of.method == method), &x, name),
    };
    summary::methods(cells.iter().map(|c| c.of)).into_iter().map(line).collect()
}

fn points<'a>(
    cells: impl Iterator<Item = &'a Cell<'a>>,
    x: impl Fn(&Record) -> Option<f64>,
    name: &str,
) -> Vec<Point> {
    let point = |c: &Cell| {
        let x = x(c.of)?;
        let note = format!(
            "{}, {name} {}: {}{}",
            with_m(&c.of.method, c.of.tau),
            crate::text::tick(x),
            sig(c.mean),
            spread(c.low, c.high, c.repeats)
        );
        Some(Point { x, y: c.mean, low: c.low, high: c.high, note })
    };
    let mut points: Vec<Point> = cells.filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn spread(low: f64, high: f64, repeats: usize) -> String {
    if repeats > 1 {
        format!(" ({} to {} in {repeats} repeats)", sig(low), sig(high))
    } else {
        String::new()
    }
}

/// All values of x.
fn ticks(series: &[Series]) -> Vec<f64> {
    let mut all: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|p| p.x).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// A method with its block: m = 4d.
pub(crate) fn with_m(method: &str, tau: Option<u32>) -> String {
    match tau {
        Some(1) => format!("{method}, m = d"),
        Some(tau) => format!("{method}, m = {tau}d"),
        None => method.into(),
    }
}

/// What a sweep held fixed, if it did.
fn fixed<'a>(records: impl Iterator<Item = &'a Record> + Clone, sweep: &str) -> String {
    let parts: Vec<String> = ["l", "n", "d"]
        .iter()
        .filter(|name| **name != sweep)
        .filter_map(|name| {
            let mut values = records.clone().filter_map(|r| swept(r, name));
            let first = values.next()?;
            values.all(|v| v == first).then(|| format!("{name} = {}", count(first as u64)))
        })
        .collect();
    parts.join(", ")
}

/// The rows and dimensions of records: the largest, since rounds learn from parts.
fn sizes<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> String {
    let rows = records.clone().map(|r| r.rows).max().unwrap_or(0);
    let dim = records.map(|r| r.dim).max().unwrap_or(0);
    format!("n = {}, d = {}", count(rows), count(dim))
}
