//! Numbers in texts, as Python prints them. Pure.

use std::borrow::Cow;

/// How far two numbers may be apart, as a part of the larger one, and count as nearly the same.
const MAX_DRIFT: f64 = 0.1;

/// Whether `one` and `other` are not nearly the same.
pub(super) fn are_far(one: f64, other: f64) -> bool {
    (one - other).abs() > MAX_DRIFT * one.abs().max(other.abs())
}

/// Parses a number: `3`, `0.6931`, `nan`, and those in `tensor(0.6871, device='cuda:0')`, `np.float64(0.69)` and the like.
pub(super) fn number(text: &str) -> Option<f64> {
    digits(text).and_then(|digits| digits.parse().ok())
}

/// The same text for each number of the same value: of `1`, `1.0` and `np.float64(1.0)`. `nan` is equal to itself.
/// Any other text stays as it is.
pub(super) fn by_value(text: &str) -> Cow<'_, str> {
    let Some(digits) = digits(text) else {
        return Cow::Borrowed(text);
    };
    // A whole number may have more digits than a float.
    if let Ok(whole) = digits.parse::<i128>() {
        return whole.to_string().into();
    }
    match digits.parse::<f64>() {
        Ok(number) if number.is_nan() => "nan".into(),
        Ok(0.0) => "0".into(),
        Ok(number) => number.to_string().into(),
        Err(_) => Cow::Borrowed(text),
    }
}

/// The part of `text` that is its number.
fn digits(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((name, inner)) if is_of_array(name) => match inner.split_once(',') {
            // `device='cuda:0'` is no second number, unlike the one in `Fraction(1, 3)`.
            Some((first, rest))
                if rest
                    .split_once('=')
                    .is_some_and(|(name, _)| is_name(name.trim())) =>
            {
                first.trim()
            }
            Some(_) => return None,
            None => inner.trim(),
        },
        _ => text,
    };
    let digits = inner.trim_start_matches(['-', '+']);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    ((is_number || matches!(digits, "nan" | "inf")) && inner.parse::<f64>().is_ok())
        .then_some(inner)
}

/// Whether a type of this name is of torch or numpy, which have numbers of their own: `tensor`, `np.float64`.
fn is_of_array(name: &str) -> bool {
    let of_numpy = name
        .strip_prefix("np.")
        .or_else(|| name.strip_prefix("numpy."));
    // The probe writes them without the module.
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name == "tensor" || of_numpy.is_some_and(is_name) || matches!(bare, "float" | "int" | "uint")
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_in_python_notation() {
        for (text, value) in [
            ("3\n", Some(3.0)),
            ("-1.5e-3", Some(-0.0015)),
            (
                "tensor(0.6871, device='cuda:0', grad_fn=<MeanBackward0>)",
                Some(0.6871),
            ),
            ("np.float64(2.5)", Some(2.5)),
            ("inf", Some(f64::INFINITY)),
            ("tensor([1., 2.])", None),
            ("infinity", None),
            ("(3, 4)", None),
            ("Fraction(1, 3)", None),
            ("f(x)", None),
            ("", None),
        ] {
            assert_eq!(number(text), value, "{text}");
        }
        assert!(number("tensor(nan)").is_some_and(f64::is_nan));
    }

    #[test]
    fn spelling_of_a_number_does_not_matter() {
        for (one, other) in [
            ("1", "1.0000"),
            ("0.1", "1e-1"),
            ("-0.0", "0"),
            ("nan", "-nan"),
            ("tensor(nan)", "nan"),
            ("np.float64(2.50)", "2.5"),
        ] {
            assert_eq!(by_value(one), by_value(other), "{one}, {other}");
        }
        for (one, other) in [
            ("9007199254740993", "9007199254740992"),
            ("nan", "0"),
            ("inf", "-inf"),
            ("'1'", "1"),
            ("True", "1"),
            ("Sum(1)", "Mean(1)"),
        ] {
            assert_ne!(by_value(one), by_value(other), "{one}, {other}");
        }
    }
}
