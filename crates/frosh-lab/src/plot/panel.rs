//! One line chart.

use super::WIDTH;
use super::scale::{Kind, Scale};
use super::style::{Style, marker};
use crate::text::{escape, tick};

pub(super) const HEIGHT: f64 = 270.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 42.0;
const BOTTOM: f64 = 42.0;

/// An axis: its label with the unit, its kind, its range (found from the data if none), and values that want a tick.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) kind: Kind,
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) at: Vec<f64>,
}

/// A place on a line, with the range over repeats and what a reader is told who points at it.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Empty for a point without a marker.
    pub(crate) note: String,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) style: Style,
    pub(crate) points: Vec<Point>,
}

/// A chart with a title and, below it, what was held fixed.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) fixed: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

impl Panel {
    /// What a reader hears instead.
    pub(super) fn description(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|s| s.label.as_str()).collect();
        format!("{}: {} over {}, for {}", self.title, self.y.label, self.x.label, names.join(", "))
    }

    /// The elements inside of an `<svg>` or `<g>`.
    pub(super) fn draw(&self) -> String {
        let drawable = |p: &&Point| self.x.kind.can_draw(p.x) && self.y.kind.can_draw(p.y);
        let lines: Vec<(&Series, Vec<&Point>)> =
            self.series.iter().map(|s| (s, s.points.iter().filter(drawable).collect())).collect();
        let all = || lines.iter().flat_map(|(_, points)| points.iter());
        let x_range = self.x.range.unwrap_or_else(|| self.x.kind.range(all().map(|p| p.x)));
        let y_values = all().flat_map(|p| [p.y, p.low, p.high]);
        let y_range = self.y.range.unwrap_or_else(|| self.y.kind.range(y_values));
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let x = Scale::new(self.x.kind, x_range, LEFT, right);
        let y = Scale::new(self.y.kind, y_range, floor, TOP);

        let mut svg = header(&self.title, &self.fixed);
        svg += &self.draw_y(&y, right);
        svg += &draw_x(&self.x, &x, TOP, floor);
        svg += &format!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{floor}H{right}\"/>\n");
        for (series, points) in &lines {
            svg += &band(series.style, points, &x, &y, self.y.kind);
        }
        for (series, points) in &lines {
            svg += &line(series.style, points, &x, &y);
        }
        for (series, points) in &lines {
            for p in points.iter().filter(|p| !p.note.is_empty()) {
                svg += &marker(series.style, x.at(p.x), y.at(p.y), &escape(&p.note));
            }
            svg.push('\n');
        }
        if all().next().is_none() {
            let (cx, cy) = ((LEFT + right) / 2.0, (TOP + floor) / 2.0);
            svg += &format!(
                "<text class=\"soft\" x=\"{cx}\" y=\"{cy}\" text-anchor=\"middle\">no \
                 measurements</text>\n"
            );
        }
        svg
    }

    fn draw_y(&self, y: &Scale, right: f64) -> String {
        let mut svg = String::new();
        let (labelled, minor) = y.ticks();
        for value in labelled {
            let at = y.at(value);
            svg += &format!(
                "<line class=\"grid\" stroke=\"#d9d9d9\" x1=\"{LEFT}\" x2=\"{right}\" \
                 y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"num\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 6.0,
                at + 4.0,
                tick(value)
            );
        }
        for value in minor {
            svg += &format!("<path class=\"axis\" d=\"M{LEFT} {:.1}h-3\"/>", y.at(value));
        }
        svg + &format!(
            "<text transform=\"translate(11 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2.0,
            escape(&self.y.label)
        )
    }
}

/// A title, and a line of small text below.
pub(super) fn header(title: &str, fixed: &str) -> String {
    format!(
        "<text class=\"t\" font-weight=\"600\" x=\"{LEFT}\" y=\"15\">{}</text>\
         <text class=\"soft small\" x=\"{LEFT}\" y=\"31\">{}</text>\n",
        escape(title),
        escape(fixed)
    )
}

/// The axis below, with its grid between two heights.
pub(super) fn draw_x(axis: &Axis, x: &Scale, top: f64, floor: f64) -> String {
    let mut svg = String::new();
    let (labelled, minor) =
        if axis.at.is_empty() { x.ticks() } else { (axis.at.clone(), Vec::new()) };
    for &value in labelled.iter().filter(|v| axis.kind.can_draw(**v)) {
        let at = x.at(value);
        svg += &format!(
            "<line class=\"grid\" stroke=\"#d9d9d9\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" \
             y2=\"{floor}\"/>\
             <path class=\"axis\" d=\"M{at:.1} {floor}v4\"/>"
        );
    }
    for value in minor {
        svg += &format!("<path class=\"axis\" d=\"M{:.1} {floor}v3\"/>", x.at(value));
    }
    for value in x.apart(&labelled) {
        svg += &format!(
            "<text class=\"num\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            x.at(value),
            floor + 17.0,
            tick(value)
        );
    }
    svg + &format!(
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        floor + 35.0,
        escape(&axis.label)
    )
}

fn line(style: Style, points: &[&Point], x: &Scale, y: &Scale) -> String {
    if points.len() < 2 {
        return String::new();
    }
    let path: Vec<String> =
        points.iter().map(|p| format!("{:.1} {:.1}", x.at(p.x), y.at(p.y))).collect();
    format!(
        "<path class=\"s {}\" stroke=\"{}\" fill=\"none\" stroke-dasharray=\"{}\" d=\"M{}\"/>\n",
        style.class,
        style.colour,
        if style.dash.is_empty() { "none" } else { style.dash },
        path.join("L")
    )
}

/// The range over repeats; a single point gets a bar.
fn band(style: Style, points: &[&Point], x: &Scale, y: &Scale, kind: Kind) -> String {
    let wide = |p: &&&Point| kind.can_draw(p.low) && kind.can_draw(p.high) && p.low < p.high;
    let known: Vec<&&Point> = points.iter().filter(wide).collect();
    let place = |px: f64, py: f64| format!("{:.1} {:.1}", x.at(px), y.at(py));
    match known.as_slice() {
        [] => String::new(),
        [one] => format!(
            "<path class=\"e {}\" stroke=\"{}\" d=\"M{}L{}\"/>\n",
            style.class,
            style.colour,
            place(one.x, one.low),
            place(one.x, one.high)
        ),
        _ => {
            let above = known.iter().map(|p| place(p.x, p.high));
            let below = known.iter().rev().map(|p| place(p.x, p.low));
            let path: Vec<String> = above.chain(below).collect();
            format!(
                "<path class=\"b {}\" fill=\"{}\" opacity=\".16\" d=\"M{}z\"/>\n",
                style.class,
                style.colour,
                path.join("L")
            )
        }
    }
}
