//! How a method looks: the same in every figure.
//!
//! FD is what OSH sketches with and FFD is what FROSH does, so each shares the other's colour; they are never in one
//! panel. Lines that lie on each other are told apart by their dashes.

/// A marker's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Diamond,
    Up,
    Down,
    Plus,
    Cross,
    Star,
    Bar,
}

/// A method's look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Style {
    /// The class that sets the colour.
    pub(crate) class: &'static str,
    /// The same colour for readers that know no CSS variables.
    pub(crate) colour: &'static str,
    pub(crate) shape: Shape,
    pub(crate) dash: &'static str,
    /// Not filled: a value of the paper.
    pub(crate) hollow: bool,
}

/// A method's style; unknown ones share a plain one.
pub(crate) fn style(method: &str) -> Style {
    let (class, colour, shape, dash) = match method {
        "LSH" => ("m-lsh", "#767676", Shape::Cross, "2 3"),
        "FD" | "OSH" => ("m-osh", "#0072b2", Shape::Square, ""),
        "FFD" | "FROSH" => ("m-frosh", "#d55e00", Shape::Circle, "7 4"),
        "DFROSH" => ("m-dfrosh", "#e69f00", Shape::Up, "2 4"),
        "SGH" => ("m-sgh", "#009e73", Shape::Diamond, ""),
        "OCH-style" => ("m-och", "#cc79a7", Shape::Down, ""),
        "PCA" => ("m-pca", "#9a8700", Shape::Bar, "5 3"),
        "PCA-RR" => ("m-pcarr", "#1b1b1b", Shape::Plus, "9 3 2 3"),
        "PCA-ITQ" => ("m-itq", "#56b4e9", Shape::Star, ""),
        _ => ("m-other", "#1b1b1b", Shape::Circle, "1 3"),
    };
    Style { class, colour, shape, dash, hollow: false }
}

/// FFD's style for m = tau d: the method's colour, with a shape and dashes of its own.
pub(crate) fn with_tau(method: &str, tau: Option<u32>) -> Style {
    let style = style(method);
    let (shape, dash) = match tau {
        Some(1) => (Shape::Up, "1.5 3.5"),
        Some(2) => (Shape::Diamond, "4 3"),
        Some(4) => (Shape::Circle, "9 3"),
        Some(8) => (Shape::Down, ""),
        _ => (style.shape, style.dash),
    };
    Style { shape, dash, ..style }
}

/// A marker at a place; `note` becomes its tooltip and must be escaped.
pub(super) fn marker(style: Style, x: f64, y: f64, note: &str) -> String {
    let r = 4.0;
    let path = match style.shape {
        Shape::Circle => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 8 0a{r} {r} 0 1 0 -8 0z", x - r),
        Shape::Square => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
        Shape::Diamond => format!("M{x:.1} {:.1}l4.8 4.8l-4.8 4.8l-4.8 -4.8z", y - 4.8),
        Shape::Up => format!("M{x:.1} {:.1}l4.6 8h-9.2z", y - 5.0),
        Shape::Down => format!("M{x:.1} {:.1}l4.6 -8h-9.2z", y + 5.0),
        Shape::Plus => polygon(x, y, 4.6, 1.3, 0.0),
        Shape::Cross => polygon(x, y, 4.6, 1.3, std::f64::consts::FRAC_PI_4),
        Shape::Star => star(x, y),
        Shape::Bar => format!("M{:.1} {:.1}h9v4h-9z", x - 4.5, y - 2.0),
    };
    let (class, paint) = if style.hollow {
        // Larger, so that it shows around a filled mark at the same place.
        let grown = format!("translate({x:.1} {y:.1}) scale(1.3) translate({:.1} {:.1})", -x, -y);
        ("h", format!("fill=\"none\" stroke=\"{}\" transform=\"{grown}\"", style.colour))
    } else {
        ("k", format!("fill=\"{}\"", style.colour))
    };
    let title = if note.is_empty() { String::new() } else { format!("<title>{note}</title>") };
    format!("<path class=\"{class} {}\" {paint} d=\"{path}\">{title}</path>", style.class)
}

/// A plus sign with arms of a length and half a width, turned by an angle.
fn polygon(x: f64, y: f64, arm: f64, half: f64, turn: f64) -> String {
    let corners =
        [(half, -arm), (half, -half), (arm, -half), (arm, half), (half, half), (half, arm)];
    let all = corners.iter().copied().chain(corners.iter().map(|(a, b)| (-a, -b)));
    points(
        x,
        y,
        all.map(|(a, b)| (a * turn.cos() - b * turn.sin(), a * turn.sin() + b * turn.cos())),
    )
}

fn star(x: f64, y: f64) -> String {
    points(
        x,
        y,
        (0..10).map(|i| {
            let angle = f64::from(i) * std::f64::consts::PI / 5.0;
            let r = if i % 2 == 0 { 5.6 } else { 2.4 };
            (r * angle.sin(), -r * angle.cos())
        }),
    )
}

fn points(x: f64, y: f64, all: impl Iterator<Item = (f64, f64)>) -> String {
    let all: Vec<String> = all.map(|(a, b)| format!("{:.1} {:.1}", x + a, y + b)).collect();
    format!("M{}z", all.join("L"))
}
