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

/// A whole number, its thousands apart.
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

/// A number with three significant digits; a dash where there is none.
pub(crate) fn sig(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "–".into()
    } else if size == 0.0 {
        "0".into()
    } else if !(0.9995e-3..1e9).contains(&size) {
        let mut power = size.log10().floor() as i32;
        let mut mantissa = value / 10f64.powi(power);
        // Rounding can carry into a further digit.
        if mantissa.abs() >= 9.995 {
            mantissa /= 10.0;
            power += 1;
        }
        // A subnormal's power of ten is not finite.
        if !mantissa.is_finite() {
            return "0".into();
        }
        format!("{} × 10{}", trim(format!("{mantissa:.1}")), superscript(power))
    } else if size >= 99.95 {
        let whole = count(size.round() as u64);
        if value < 0.0 { format!("-{whole}") } else { whole }
    } else {
        let decimals = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
        format!("{value:.decimals$}")
    }
}

/// A factor: "12 times", with as many digits as such a number deserves.
pub(crate) fn factor(value: f64) -> String {
    if !value.is_finite() {
        "–".into()
    } else if value >= 9.95 {
        count(value.round() as u64)
    } else if value >= 0.995 {
        format!("{value:.1}")
    } else {
        sig(value)
    }
}

/// A tick's label: short, since there is little room.
pub(crate) fn tick(value: f64) -> String {
    let size = value.abs();
    if size >= 1e9 || (size > 0.0 && size < 0.9995e-3) {
        let power = size.log10().floor() as i32;
        let mantissa = (value / 10f64.powi(power) * 10.0).round() / 10.0;
        if mantissa == 1.0 {
            format!("10{}", superscript(power))
        } else {
            format!("{}·10{}", trim(format!("{mantissa:.1}")), superscript(power))
        }
    } else if size >= 1e6 {
        format!("{}M", trim(format!("{:.2}", value / 1e6)))
    } else if size >= 1e4 || (size >= 1e3 && value % 500.0 == 0.0) {
        format!("{}k", trim(format!("{:.1}", value / 1e3)))
    } else {
        trim(format!("{value:.5}"))
    }
}

/// Seconds as people say them.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds <= 0.0 {
        "an unknown time".into()
    } else if seconds < 120.0 {
        format!("{} seconds", sig(seconds))
    } else if seconds < 7200.0 {
        format!("{:.0} minutes", seconds / 60.0)
    } else {
        format!("{:.1} hours", seconds / 3600.0)
    }
}

/// Names in a sentence: "a, b and c".
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    match names {
        [] => String::new(),
        [one] => one.as_ref().into(),
        [head @ .., last] => {
            let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", head.join(", "), last.as_ref())
        }
    }
}

fn trim(number: String) -> String {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        number
    }
}

fn superscript(power: i32) -> String {
    let digit = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => char::from_u32('⁰' as u32 + (c as u32 - '0' as u32)).unwrap_or(c),
    };
    power.to_string().chars().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown = |v| sig(v);
        assert_eq!(shown(0.0123456), "0.0123");
        assert_eq!(shown(99.96), "100");
        assert_eq!(shown(1234.6), "1,235");
        assert_eq!(shown(-0.5), "-0.500");
        assert_eq!(shown(3.14159e-5), "3.1 × 10⁻⁵");
        assert_eq!(shown(f64::NAN), "–");
        assert_eq!(shown(5e-324), "0");
        assert_eq!(tick(50_000.0), "50k");
        assert_eq!(tick(1500.0), "1.5k");
        assert_eq!(tick(1024.0), "1024");
        assert_eq!(tick(1e-4), "10⁻⁴");
        assert_eq!(tick(0.25), "0.25");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
    }

    #[test]
    fn markup_and_control_characters_do_not_pass() {
        assert_eq!(escape("<b a='\"'>&\u{0}\u{ffff}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;��");
    }
}
