//! Line charts side by side, as SVG.
//!
//! It is our own rather than the `plotters` crate because colours must follow light and dark, text must scale with its
//! panel, and panels must wrap on a phone: each panel is an `<svg>` of its own in the page, and all of a figure's are put
//! side by side in a file.
//!
//! Methods differ in colour (Okabe and Ito's, which show on light and dark), in the marker's shape and in the dashes. The
//! range over repeats is a band; a value that the paper prints is a hollow marker. Values that cannot be drawn (not
//! finite, not positive on a logarithmic axis) are left out.

use crate::summary::range;
use crate::text::{escape, tick};

/// The style sheet, for the page and for files.
pub const CSS: &str = include_str!("plot.css");

/// A panel's size, in its own units; text is 12 of them high.
const SIZE: (f64, f64) = (360.0, 270.0);
/// The drawing area.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 346.0;
const TOP: f64 = 42.0;
const FLOOR: f64 = 228.0;
/// Beyond this nothing is drawn: no measurement is that large, and sums stay finite.
const LARGEST: f64 = 1e15;
/// Columns of a legend's entry in a file, and the space between panels.
const ENTRY: f64 = 120.0;
const AIR: f64 = 12.0;

/// A value, its range over repeats, the paper's value, and a tooltip; without one there is no marker.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) paper: Option<f64>,
    pub(crate) note: String,
}

/// One line; `tau` chooses among the styles of FFD.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) method: String,
    pub(crate) tau: Option<u32>,
    pub(crate) points: Vec<Point>,
}

/// An axis: its label, whether it is logarithmic, its range, and where its ticks are.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    label: &'static str,
    log: bool,
    range: (f64, f64),
    ticks: Vec<f64>,
}

/// A chart: its title, what was held fixed, its axes and its lines.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) fixed: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

impl Axis {
    /// Through all of the values, which get a tick each.
    pub(crate) fn at(label: &'static str, log: bool, values: impl Iterator<Item = f64>) -> Self {
        let mut ticks: Vec<f64> = values.filter(|v| can_draw(log, *v)).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        Axis { label, log, range: padded(log, ticks.iter().copied()), ticks }
    }

    /// Through all of the values, with round numbers as ticks; from zero where that costs little.
    pub(crate) fn over(label: &'static str, log: bool, values: impl Iterator<Item = f64>) -> Self {
        let (mut low, high) = padded(log, values.filter(|v| can_draw(log, *v)));
        if !log && low > -0.1 * high && low < 0.5 * high {
            low = 0.0;
        }
        Axis { label, log, range: (low, high), ticks: round_numbers(log, low, high) }
    }

    /// Through all of the values, with round numbers as ticks; from zero only if that is the smallest of them.
    pub(crate) fn between(label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = padded(false, values.filter(|v| can_draw(false, *v)));
        Axis { label, log: false, range: (low, high), ticks: round_numbers(false, low, high) }
    }

    /// From 0 to 1.
    pub(crate) fn unit(label: &'static str) -> Self {
        Axis { label, log: false, range: (0.0, 1.0), ticks: round_numbers(false, 0.0, 1.0) }
    }

    /// A value's share of the axis.
    fn share(&self, value: f64) -> f64 {
        let on = |v: f64| if self.log { v.log10() } else { v };
        (on(value) - on(self.range.0)) / (on(self.range.1) - on(self.range.0))
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.share(value) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        FLOOR - self.share(value) * (FLOOR - TOP)
    }
}

fn can_draw(log: bool, value: f64) -> bool {
    value.abs() <= LARGEST && (!log || value >= 1.0 / LARGEST)
}

/// The range of the values with some air.
fn padded(log: bool, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let on = |v: f64| if log { v.log10() } else { v };
    let (mut low, mut high) = range(values.map(on)).unwrap_or((0.0, 1.0));
    if high - low < 1e-9 * high.abs().max(1e-9) {
        let around = if log { 0.3 } else { high.abs().max(1e-9) * 0.2 };
        (low, high) = (low - around, high + around);
    }
    let (low, high) = (low - (high - low) * 0.06, high + (high - low) * 0.06);
    if log { (10f64.powf(low), 10f64.powf(high)) } else { (low, high) }
}

/// About five round numbers between two: steps of 1, 2 or 5 times a power of ten; over decades, powers and some between.
fn round_numbers(log: bool, low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let inside = |v: &f64| (low..=high * (1.0 + 1e-9)).contains(v);
    if log && decades >= 1.0 {
        let digits: &[f64] = match decades {
            d if d < 2.2 => &[1.0, 2.0, 5.0],
            d if d < 3.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let step = (decades / 6.0).ceil() as i32;
        let powers =
            (low.log10().floor() as i32..=high.log10() as i32).filter(|p| p.rem_euclid(step) == 0);
        return powers
            .flat_map(|p| digits.iter().map(move |d| d * 10f64.powi(p)))
            .filter(inside)
            .collect();
    }
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].iter().map(|m| m * power).find(|s| *s >= rough * 0.99);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step - 1e-9).ceil();
    (0..12).map(|i| (first + f64::from(i)) * step).filter(inside).collect()
}

/// A method's colour, marker (a path from its centre) and dashes. FD is what OSH sketches with and FFD what FROSH does, so
/// each shares the other's colour; they are never in one panel.
#[rustfmt::skip] // A table.
fn style(method: &str, tau: Option<u32>) -> [&'static str; 3] {
    const CIRCLE: &str = "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z";
    const SQUARE: &str = "m-3.5-3.5h7v7h-7z";
    const DIAMOND: &str = "m0-4.8l4.8 4.8l-4.8 4.8l-4.8-4.8z";
    const UP: &str = "m0-5l4.6 8h-9.2z";
    const DOWN: &str = "m0 5l4.6-8h-9.2z";
    const BAR: &str = "m-4.5-2h9v4h-9z";
    const PLUS: &str = "m-1.3-4.6h2.6v3.3h3.3v2.6h-3.3v3.3h-2.6v-3.3h-3.3v-2.6h3.3z";
    const STAR: &str = "m0-5.6l1.4 3.7l3.9.2l-3 2.4l1 3.8l-3.3-2.1l-3.3 2.1l1-3.8l-3-2.4l3.9-.2z";
    const CROSS: &str = "m-4.2-2.6l1.6-1.6l2.6 2.6l2.6-2.6l1.6 1.6l-2.6 2.6l2.6 2.6l-1.6 1.6l-2.6-2.6l-2.6 2.6l-1.6-1.6l2.6-2.6z";
    match (method, tau) {
        ("LSH", _) => ["#767676", CROSS, "2 3"],
        ("FD" | "OSH", _) => ["#0072b2", SQUARE, "none"],
        ("FFD", Some(1)) => ["#d55e00", UP, "1.5 3.5"],
        ("FFD", Some(2)) => ["#d55e00", DIAMOND, "4 3"],
        ("FFD", Some(8)) => ["#d55e00", DOWN, "none"],
        ("FFD" | "FROSH", _) => ["#d55e00", CIRCLE, "7 4"],
        ("DFROSH", _) => ["#e69f00", UP, "2 4"],
        ("SGH", _) => ["#009e73", DIAMOND, "none"],
        ("OCH-style", _) => ["#cc79a7", DOWN, "none"],
        ("PCA", _) => ["#9a8700", BAR, "5 3"],
        ("PCA-RR", _) => ["#8e6bbf", PLUS, "9 3 2 3"],
        ("PCA-ITQ", _) => ["#56b4e9", STAR, "none"],
        ("frozen", _) => ["#767676", CROSS, "2 3"],
        ("encode all", _) => ["#0072b2", SQUARE, "none"],
        ("mixed", _) => ["#cc79a7", DOWN, "5 3"],
        ("versions", _) => ["#d55e00", CIRCLE, "none"],
        ("when due", _) => ["#009e73", DIAMOND, "7 4"],
        _ => ["#767676", CIRCLE, "1 3"],
    }
}

impl Series {
    fn style(&self) -> [&'static str; 3] {
        style(&self.method, self.tau)
    }

    /// A short piece of line with a marker, for a legend.
    fn sample(&self, x: f64, y: f64) -> String {
        let [colour, shape, dash] = self.style();
        format!(
            "<svg class=\"plot\" x=\"{x}\" y=\"{y}\" width=\"34\" height=\"14\" color=\"{colour}\" aria-hidden=\"true\">\
             <path class=\"line\" stroke-dasharray=\"{dash}\" d=\"M2 7h30\"/><path class=\"mark\" d=\"M17 7{shape}\"/></svg>"
        )
    }
}

impl Panel {
    /// The chart; its place matters only inside of another `<svg>`.
    fn svg(&self, x: f64, y: f64) -> String {
        let (width, height) = SIZE;
        let names: Vec<&str> = self.series.iter().map(|s| s.label.as_str()).collect();
        let hear = format!(
            "{}: {} over {}, for {}",
            self.title,
            self.y.label,
            self.x.label,
            names.join(", ")
        );
        format!(
            "<svg class=\"plot\" role=\"img\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\"><title>{}</title>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"15\">{}</text><text class=\"soft\" x=\"{LEFT}\" y=\"31\">{}</text>\n\
             {}{}{}</svg>\n",
            escape(&hear),
            escape(&self.title),
            escape(&self.fixed),
            self.axes(),
            self.draw(|p, s| self.band(p, s)),
            self.draw(|p, s| self.line(p, s)),
        )
    }

    fn axes(&self) -> String {
        let mut svg = String::new();
        for value in &self.y.ticks {
            let at = self.y.y(*value);
            svg += &format!(
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>\n",
                LEFT - 6.0,
                at + 4.0,
                tick(*value)
            );
        }
        // From the right, a label is left out where it would touch the one before.
        let mut free = f64::INFINITY;
        for value in self.x.ticks.iter().rev() {
            let (at, half) = (self.x.x(*value), tick(*value).chars().count() as f64 * 3.4 + 3.0);
            svg += &format!("<path class=\"grid\" d=\"M{at:.1} {TOP}V{FLOOR}\"/>");
            if at + half <= free {
                free = at - half;
                svg += &format!(
                    "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                    FLOOR + 17.0,
                    tick(*value)
                );
            }
        }
        svg + &format!(
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{FLOOR}H{RIGHT}\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(11 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            (LEFT + RIGHT) / 2.0,
            FLOOR + 35.0,
            self.x.label,
            (TOP + FLOOR) / 2.0,
            self.y.label
        )
    }

    /// Something of each line, in its colour.
    fn draw(&self, one: impl Fn(&[&Point], &Series) -> String) -> String {
        let drawable = |p: &&Point| can_draw(self.x.log, p.x) && can_draw(self.y.log, p.y);
        let draw = |s: &Series| {
            let points: Vec<&Point> = s.points.iter().filter(drawable).collect();
            format!("<g color=\"{}\">{}</g>\n", s.style()[0], one(&points, s))
        };
        self.series.iter().map(draw).collect()
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let place = |(x, y)| format!("{:.1} {:.1}", self.x.x(x), self.y.y(y));
        points.map(place).collect::<Vec<_>>().join("L")
    }

    /// The range over repeats; a single point gets a bar.
    fn band(&self, points: &[&Point], _: &Series) -> String {
        let wide = |p: &&&Point| {
            can_draw(self.y.log, p.low) && can_draw(self.y.log, p.high) && p.low < p.high
        };
        let known: Vec<_> = points.iter().filter(wide).collect();
        let class = match known.len() {
            0 => return String::new(),
            1 => "bar",
            _ => "band",
        };
        let above = known.iter().map(|p| (p.x, p.high));
        let path = self.path(above.chain(known.iter().rev().map(|p| (p.x, p.low))));
        format!("<path class=\"{class}\" d=\"M{path}z\"/>")
    }

    fn line(&self, points: &[&Point], series: &Series) -> String {
        let [_, shape, dash] = series.style();
        let mut svg = String::new();
        if points.len() > 1 {
            let path = self.path(points.iter().map(|p| (p.x, p.y)));
            svg += &format!("<path class=\"line\" stroke-dasharray=\"{dash}\" d=\"M{path}\"/>\n");
        }
        for p in points {
            let place = |y: f64| format!("translate({:.1} {:.1})", self.x.x(p.x), self.y.y(y));
            if !p.note.is_empty() {
                let (at, note) = (place(p.y), escape(&p.note));
                svg += &format!(
                    "<path class=\"mark\" transform=\"{at}\" d=\"M0 0{shape}\"><title>{note}</title></path>"
                );
            }
            // Larger, so that it shows around a filled marker at the same place.
            if let Some(y) = p.paper.filter(|y| can_draw(self.y.log, *y)) {
                svg += &format!(
                    "<path class=\"paper\" transform=\"{} scale(1.4)\" d=\"M0 0{shape}\"><title>the paper’s</title></path>",
                    place(y)
                );
            }
        }
        svg
    }
}

/// Each line once, in the order of its first panel.
fn legend(panels: &[Panel]) -> Vec<&Series> {
    let mut all: Vec<&Series> = Vec::new();
    for series in panels.iter().flat_map(|p| &p.series) {
        if all.iter().all(|s| s.label != series.label) {
            all.push(series);
        }
    }
    all
}

/// Panels for a page, each an `<svg>` of its own, so that they wrap.
pub(crate) fn html(panels: &[Panel], columns: usize) -> String {
    let entry = |s: &&Series| format!("<li>{}{}</li>\n", s.sample(0.0, 0.0), escape(&s.label));
    let entries: String = legend(panels).iter().map(entry).collect();
    let panels: String = panels.iter().map(|p| p.svg(0.0, 0.0)).collect();
    format!(
        "<ul class=\"legend\">\n{entries}</ul>\n<div class=\"panels of{columns}\">\n{panels}</div>\n"
    )
}

/// One panel with a point for each method: (method, x, y), x on a logarithmic axis.
pub fn scatter(x: &'static str, y: &'static str, points: &[(&'static str, f64, f64)]) -> String {
    let series = points.iter().map(|&(method, x, y)| {
        let note = format!("{method}: {} at {}", tick(y), tick(x));
        let point = Point { x, y, low: y, high: y, paper: None, note };
        Series { label: method.into(), method: method.into(), tau: None, points: vec![point] }
    });
    let series = series.collect();
    let x = Axis::over(x, true, points.iter().map(|p| p.1));
    let y = Axis::over(y, false, points.iter().map(|p| p.2).chain([0.0]));
    html(&[Panel { title: String::new(), fixed: String::new(), x, y, series }], 1)
}

/// A file with everything in it.
pub(crate) fn file(title: &str, panels: &[Panel], columns: usize) -> String {
    let width = columns as f64 * (SIZE.0 + AIR) + AIR;
    let mut body = String::new();
    let mut top = AIR + 20.0;
    for row in legend(panels).chunks((width / ENTRY) as usize) {
        for (i, series) in row.iter().enumerate() {
            let left = AIR + i as f64 * ENTRY;
            body += &series.sample(left, top);
            body += &format!(
                "<text x=\"{}\" y=\"{}\">{}</text>\n",
                left + 36.0,
                top + 11.0,
                escape(&series.label)
            );
        }
        top += 22.0;
    }
    for row in panels.chunks(columns) {
        for (i, panel) in row.iter().enumerate() {
            body += &panel.svg(AIR + i as f64 * (SIZE.0 + AIR), top + AIR);
        }
        top += SIZE.1 + AIR;
    }
    let (height, title) = (top + AIR, escape(title));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<title>{title}</title>\n<style>\n{CSS}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\" style=\"fill: var(--ground)\"/>\n\
         <text class=\"title\" x=\"{AIR}\" y=\"22\">{title}</text>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().copied().map(tick).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            labels(&Axis::over("", false, [0.1, 0.7].into_iter())),
            ["0", "0.2", "0.4", "0.6"]
        );
        assert_eq!(labels(&Axis::over("", true, [0.02, 30.0].into_iter())), ["0.1", "1", "10"]);
        assert!(Axis::over("", true, [3.0, 8.0].into_iter()).ticks.len() >= 3);
        assert_eq!(labels(&Axis::unit("")), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn odd_values_have_a_range_still() {
        let odd: [&[f64]; 6] = [&[], &[f64::NAN], &[0.0], &[-1.0], &[1e308, -1e308], &[7.0, 7.0]];
        for log in [false, true] {
            for values in odd {
                for axis in [
                    Axis::over("", log, values.iter().copied()),
                    Axis::at("", log, values.iter().copied()),
                ] {
                    assert!(axis.range.0 < axis.range.1, "{log} {values:?} {axis:?}");
                    assert!(axis.ticks.iter().all(|t| t.is_finite()));
                }
            }
        }
    }

    #[test]
    fn labels_do_not_touch() {
        let x = Axis::at("", true, [16.0, 32.0, 64.0, 100.0, 128.0, 200.0, 256.0].into_iter());
        let y = Axis::unit("");
        let panel = Panel { title: String::new(), fixed: String::new(), x, y, series: Vec::new() };
        let svg = panel.axes();
        let shown: Vec<&str> = ["16", "32", "64", "100", "128", "200", "256"]
            .into_iter()
            .filter(|t| svg.contains(&format!(">{t}<")))
            .collect();
        assert_eq!(shown, ["16", "32", "64", "128", "256"]);
    }
}
