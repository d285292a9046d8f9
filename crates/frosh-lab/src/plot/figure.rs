//! Panels side by side with one legend: as parts of a page, or as a file.

use super::dots::Dots;
use super::panel::{HEIGHT, Panel};
use super::style::{Style, marker};
use super::{CSS, WIDTH};
use crate::text::escape;

/// Height of a legend's line in a file.
const LEGEND: f64 = 22.0;
const AIR: f64 = 12.0;

/// One panel.
#[derive(Clone, Debug)]
pub(crate) enum Drawing {
    Lines(Panel),
    Dots(Dots),
}

/// Panels, in rows of some columns.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The name of its file and its place in the page.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) columns: usize,
    pub(crate) panels: Vec<Drawing>,
    /// Further entries of the legend, marks without a line.
    pub(crate) legend: Vec<(String, Style)>,
}

impl Drawing {
    fn height(&self) -> f64 {
        match self {
            Drawing::Lines(_) => HEIGHT,
            Drawing::Dots(dots) => dots.height(),
        }
    }

    fn draw(&self) -> String {
        match self {
            Drawing::Lines(panel) => panel.draw(),
            Drawing::Dots(dots) => dots.draw(),
        }
    }

    fn description(&self) -> String {
        escape(&match self {
            Drawing::Lines(panel) => panel.description(),
            Drawing::Dots(dots) => dots.description(),
        })
    }
}

impl Figure {
    /// Each label once, in the order of its first panel, with whether a line belongs to it.
    fn entries(&self) -> Vec<(&str, Style, bool)> {
        let mut all: Vec<(&str, Style, bool)> = Vec::new();
        for panel in &self.panels {
            if let Drawing::Lines(panel) = panel {
                for series in &panel.series {
                    if all.iter().all(|(label, ..)| *label != series.label) {
                        all.push((&series.label, series.style, true));
                    }
                }
            }
        }
        all.extend(self.legend.iter().map(|(label, style)| (label.as_str(), *style, false)));
        all
    }

    /// The panels for a page, each an `<svg>` of its own, so that they wrap.
    pub(crate) fn html(&self) -> String {
        let mut html = String::from("<ul class=\"legend\">\n");
        for (label, style, line) in self.entries() {
            html += &format!(
                "<li><svg class=\"plot\" viewBox=\"0 0 34 14\" width=\"34\" height=\"14\" \
                 aria-hidden=\"true\">{}</svg>{}</li>\n",
                sample(style, 2.0, 7.0, line),
                escape(label)
            );
        }
        html += &format!("</ul>\n<div class=\"panels of{}\">\n", self.columns.clamp(1, 3));
        for panel in &self.panels {
            html += &format!(
                "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {:.0}\" \
                 role=\"img\"><title>{}</title>\n{}</svg>\n",
                panel.height(),
                panel.description(),
                panel.draw()
            );
        }
        html + "</div>\n"
    }

    /// A file with everything in it.
    pub(crate) fn file(&self) -> String {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let width = columns as f64 * (WIDTH + AIR) + AIR;
        let mut body = String::new();
        let mut top = AIR + 20.0;
        // The legend: as many entries in a line as fit, by an estimate of their widths.
        let (mut x, mut lines) = (AIR, 1.0);
        for (label, style, line) in self.entries() {
            let wide = 36.0 + label.chars().count() as f64 * 7.2 + 18.0;
            if x > AIR && x + wide > width {
                (x, lines) = (AIR, lines + 1.0);
            }
            let y = top + lines * LEGEND - 8.0;
            body += &sample(style, x, y - 4.0, line);
            body += &format!("<text x=\"{:.0}\" y=\"{y:.0}\">{}</text>\n", x + 36.0, escape(label));
            x += wide;
        }
        top += lines * LEGEND + AIR;
        for row in self.panels.chunks(columns) {
            for (i, panel) in row.iter().enumerate() {
                let left = AIR + i as f64 * (WIDTH + AIR);
                body += &format!(
                    "<g transform=\"translate({left:.0} {top:.0})\" \
                     role=\"img\"><title>{}</title>\n{}</g>\n",
                    panel.description(),
                    panel.draw()
                );
            }
            top += row.iter().map(Drawing::height).fold(0.0, f64::max) + AIR;
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width:.0} \
             {top:.0}\" width=\"{width:.0}\" \
             height=\"{top:.0}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<title>{}</title>\n<style>\n{CSS}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\" style=\"fill: var(--ground)\"/>\n\
             <text class=\"t\" font-weight=\"600\" x=\"{AIR}\" y=\"{}\">{}</text>\n{body}</svg>\n",
            escape(self.title),
            AIR + 10.0,
            escape(self.title)
        )
    }
}

/// A marker, and the short line that it stands on.
fn sample(style: Style, x: f64, y: f64, line: bool) -> String {
    let line = if !line {
        String::new()
    } else {
        format!(
            "<path class=\"s {}\" stroke=\"{}\" stroke-dasharray=\"{}\" d=\"M{x:.1} {y:.1}h30\"/>",
            style.class,
            style.colour,
            if style.dash.is_empty() { "none" } else { style.dash }
        )
    };
    line + &marker(style, x + 15.0, y, "")
}
