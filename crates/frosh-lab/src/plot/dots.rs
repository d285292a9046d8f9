//! One dot plot: a row for each method and code length, a filled dot for what was measured, a hollow one for the paper.

use super::WIDTH;
use super::panel::{Axis, draw_x, header};
use super::scale::Scale;
use super::style::{Style, marker};
use crate::text::escape;

const LEFT: f64 = 118.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 42.0;
const BOTTOM: f64 = 42.0;
const STEP: f64 = 14.0;
/// More air before a new method.
const GAP: f64 = 7.0;

/// A row: its method, what distinguishes it, and its values.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) style: Style,
    pub(crate) value: Option<(f64, f64, f64)>,
    pub(crate) paper: Option<f64>,
    pub(crate) note: String,
}

/// The plot.
#[derive(Clone, Debug)]
pub(crate) struct Dots {
    pub(crate) title: String,
    pub(crate) fixed: String,
    pub(crate) x: Axis,
    pub(crate) rows: Vec<Row>,
}

impl Dots {
    pub(super) fn description(&self) -> String {
        format!("{}: {}, for each method and code length", self.title, self.x.label)
    }

    pub(super) fn height(&self) -> f64 {
        let groups = self.places().last().map_or(0.0, |y| y + STEP);
        groups.max(TOP + STEP) + BOTTOM
    }

    /// Each row's height on the page.
    fn places(&self) -> Vec<f64> {
        let mut y = TOP - 4.0;
        let mut places = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            let new = i > 0 && self.rows[i - 1].group != row.group;
            y += STEP + if new { GAP } else { 0.0 };
            places.push(y);
        }
        places
    }

    pub(super) fn draw(&self) -> String {
        let kind = self.x.kind;
        let all = self.rows.iter().flat_map(|r| {
            let (mean, low, high) = r.value.unwrap_or((f64::NAN, f64::NAN, f64::NAN));
            [mean, low, high, r.paper.unwrap_or(f64::NAN), 1.0]
        });
        let range = self.x.range.unwrap_or_else(|| kind.range(all));
        let (right, floor) = (WIDTH - RIGHT, self.height() - BOTTOM);
        let x = Scale::new(kind, range, LEFT, right);
        let mut svg = header(&self.title, &self.fixed);
        svg += &draw_x(&self.x, &x, TOP, floor);
        let one = x.at(1.0);
        svg += &format!("<path class=\"one\" d=\"M{one:.1} {TOP}V{floor}\"/>");
        svg += &format!("<path class=\"axis\" d=\"M{LEFT} {TOP}V{floor}H{right}\"/>\n");
        let mut last = "";
        for (row, y) in self.rows.iter().zip(self.places()) {
            if row.group != last {
                svg += &format!("<text x=\"4\" y=\"{:.1}\">{}</text>", y + 4.0, escape(&row.group));
                last = &row.group;
            }
            svg += &format!(
                "<text class=\"soft small num\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 6.0,
                y + 4.0,
                escape(&row.name)
            );
            svg += &row.draw(&x, y, |v| kind.can_draw(v));
        }
        svg
    }
}

impl Row {
    fn draw(&self, x: &Scale, y: f64, can_draw: impl Fn(f64) -> bool) -> String {
        let mut svg = String::new();
        let style = self.style;
        let paper = self.paper.filter(|v| can_draw(*v));
        let value = self.value.filter(|v| can_draw(v.0));
        if let (Some(p), Some((v, ..))) = (paper, value) {
            svg += &format!(
                "<path class=\"grid\" stroke=\"#d9d9d9\" d=\"M{:.1} {y:.1}H{:.1}\"/>",
                x.at(p),
                x.at(v)
            );
        }
        if let Some(p) = paper {
            svg += &marker(Style { hollow: true, ..style }, x.at(p), y, "the paper's");
        }
        if let Some((v, low, high)) = value {
            if can_draw(low) && can_draw(high) {
                svg += &format!(
                    "<path class=\"e {}\" stroke=\"{}\" d=\"M{:.1} {y:.1}H{:.1}\"/>",
                    style.class,
                    style.colour,
                    x.at(low),
                    x.at(high)
                );
            }
            svg += &marker(style, x.at(v), y, &escape(&self.note));
        }
        svg + "\n"
    }
}
