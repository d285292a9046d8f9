//! Small multiples as SVG: line charts and dot plots, with axes, bands and legends.
//!
//! It draws what the paper draws in Figures 2 to 6, and Table 2 as dots. It is our own rather than the `plotters` crate
//! because colours must follow CSS variables (light and dark), text must scale with its panel, and panels must wrap on
//! a phone: each panel is an `<svg>` of its own in the page, and all of a figure's are put side by side in a file.
//!
//! Where we differ from the paper: the range over repeats is drawn, methods differ in colour (Okabe and Ito's), in the
//! marker's shape and in the dashes, and a value that the paper prints is a hollow mark.
//! Values that cannot be drawn (not finite, not positive on a logarithmic axis) are left out.
//! A figure costs time and memory linear in its points.

mod dots;
mod figure;
mod panel;
mod scale;
mod style;

pub(crate) use dots::{Dots, Row};
pub(crate) use figure::{Drawing, Figure};
pub(crate) use panel::{Axis, Panel, Point, Series};
pub(crate) use scale::Kind;
pub(crate) use style::{Style, style, with_tau};

/// The rules that colour a plot, for the page and for files.
pub(crate) const CSS: &str = include_str!("plot.css");

/// A panel's width, in its own units; text is 12 of them high.
const WIDTH: f64 = 360.0;
