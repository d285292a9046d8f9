//! What goes to standard output: through one door, so that a closed pipe is an error and never a panic.

use anyhow::{Context as _, Result};
use frosh_io::visible;
use std::io::{self, Write as _};

/// Writes text to standard output. What would steer a terminal is escaped, but for tabs and the ends of lines.
pub(crate) fn print(text: &str) -> Result<()> {
    let whole = |c: char| c == '\n' || c == '\t';
    let text: String = text
        .split_inclusive(whole)
        .flat_map(|part| match part.strip_suffix(whole) {
            Some(inner) => [visible(inner), part[inner.len()..].to_owned()],
            None => [visible(part), String::new()],
        })
        .collect();
    write(&text)
}

/// Writes one JSON value and a line end. JSON's own escapes leave out a few characters that steer terminals.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<()> {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' => text += &format!("\\u{:04x}", u32::from(c)),
            other => text.push(other),
        }
    }
    text.push('\n');
    write(&text)
}

fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

/// Writes a line to standard error. If nobody can be told, so be it.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{}", visible(line));
}

/// Whether an error is only that nobody reads our output any more.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().or_else(|| match cause.downcast_ref() {
            Some(frosh_io::Error::Io { source, .. }) => Some(source),
            _ => None,
        });
        io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// An error and its causes in one line; a cause that was told already is left out.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A whole number with commas: 1,234,567.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A size in bytes, for people.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// A duration, for people.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.2} s"),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0),
        s => format!("{:.0} h {:.0} min", (s / 3600.0).floor(), s % 3600.0 / 60.0),
    }
}

/// A number to three figures, never as -0.
pub(crate) fn figures(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        a if (0.01..1e6).contains(&a) => {
            let decimals = (2 - a.log10().floor() as i32).clamp(0, 5) as usize;
            format!("{x:.decimals$}")
        }
        _ => format!("{x:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_500_000), "1.5 MB");
        assert_eq!(seconds(0.0012), "1.2 ms");
        assert_eq!(seconds(75.0), "75.0 s");
        assert_eq!(seconds(150.0), "2 min 30 s");
        assert_eq!(figures(0.123_456), "0.123");
        assert_eq!(figures(1234.5), "1234");
        assert_eq!(figures(1.5e9), "1.50e9");
    }
}
