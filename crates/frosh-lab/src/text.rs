//! Numbers and strings as the page shows them.
//!
//! Everything that comes from a record goes through [`escape`]: a data set's name is a file's name, which may hold
//! anything.

/// Text for HTML and XML: markup is escaped, and characters that XML forbids are replaced.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A whole number with thousands separators.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A number with three significant digits; a dash if it is not finite.
pub(crate) fn sig(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "–".into()
    } else if size > 0.0 && !(0.9995e-3..1e9).contains(&size) {
        format!("{value:.1e}")
    } else if size >= 99.95 {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{}", count(size.round() as u64))
    } else {
        let decimals = (2 - size.max(1e-4).log10().floor() as i32).clamp(0, 6) as usize;
        if size == 0.0 { "0".into() } else { format!("{value:.decimals$}") }
    }
}

/// A factor, as in "12 times".
pub(crate) fn factor(value: f64) -> String {
    match value {
        v if v.is_finite() && v >= 9.95 => count(v.round() as u64),
        v if v.is_finite() && v >= 0.995 => format!("{v:.1}"),
        v => sig(v),
    }
}

/// A tick's label: short, since there is little room.
pub(crate) fn tick(value: f64) -> String {
    let size = value.abs();
    let trim = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    if size >= 1e9 || (size > 0.0 && size < 0.9995e-3) {
        format!("{value:.1e}").replace(".0e", "e")
    } else if size >= 1e6 {
        format!("{}M", trim(format!("{:.2}", value / 1e6)))
    } else if size >= 1e4 || (size >= 1e3 && value % 500.0 == 0.0) {
        format!("{}k", trim(format!("{:.1}", value / 1e3)))
    } else {
        trim(format!("{value:.5}"))
    }
}

/// Seconds in words.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if !(s.is_finite() && s > 0.0) => "an unknown time".into(),
        s if s < 120.0 => format!("{} seconds", sig(s)),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

/// Names in a sentence: "a, b and c".
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [head @ .., last] if !head.is_empty() => format!("{} and {last}", head.join(", ")),
        _ => names.concat(),
    }
}

/// A method with its block: "FFD, m = 4d"; the block alone if there is no name.
pub(crate) fn with_m(method: &str, tau: Option<u32>) -> String {
    let block = match tau {
        None => String::new(),
        Some(1) => "m = d".into(),
        Some(tau) => format!("m = {tau}d"),
    };
    let comma = if method.is_empty() || block.is_empty() { "" } else { ", " };
    format!("{method}{comma}{block}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(sig(0.0123456), "0.0123");
        assert_eq!(sig(99.96), "100");
        assert_eq!(sig(1234.6), "1,235");
        assert_eq!(
            (sig(-0.5), sig(-1e3), sig(0.0)),
            ("-0.500".into(), "-1,000".into(), "0".into())
        );
        assert_eq!(sig(3.14159e-5), "3.1e-5");
        assert_eq!(sig(f64::NAN), "–");
        assert_eq!(
            (factor(12.4), factor(1.26), factor(0.25)),
            ("12".into(), "1.3".into(), "0.250".into())
        );
        assert_eq!(tick(50_000.0), "50k");
        assert_eq!(tick(1500.0), "1.5k");
        assert_eq!(tick(1024.0), "1024");
        assert_eq!((tick(1e-4), tick(2.5e9)), ("1e-4".into(), "2.5e9".into()));
        assert_eq!(tick(0.25), "0.25");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        assert_eq!((list(&["a"]), list::<&str>(&[])), ("a".into(), String::new()));
        assert_eq!(with_m("FFD", Some(4)), "FFD, m = 4d");
        assert_eq!((with_m("FD", None), with_m("", Some(1))), ("FD".into(), "m = d".into()));
    }

    #[test]
    fn markup_and_control_characters_do_not_pass() {
        assert_eq!(escape("<b a='\"'>&\u{0}\u{ffff}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;��");
    }
}
