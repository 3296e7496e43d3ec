//! Parses URL queries of the relay's own API. Pure.

use ray_relay_view::listing::select::{BadChoice, Filter};

/// Maximum number of filters per request: each checks every row.
const MAX_FILTERS: usize = 4;

const MAX_FILTER_BYTES: usize = 256;

/// Parses `text` and adds it to the `filters` of a request. An error is a sentence for the client.
pub(super) fn take_filter(filters: &mut Vec<Filter>, text: &str) -> Result<(), String> {
    if filters.len() == MAX_FILTERS || text.len() > MAX_FILTER_BYTES {
        return Err(format!(
            "there are {MAX_FILTERS} filters at most, of {MAX_FILTER_BYTES} bytes at most each"
        ));
    }
    filters.push(text.parse().map_err(|bad: BadChoice| bad.to_string())?);
    Ok(())
}

/// Names and values of `query`, decoded. An error is a sentence about the part that cannot be decoded.
pub(super) fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let parts = query.unwrap_or_default().split('&');
    parts
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match (decoded(name), decoded(value)) {
                (Some(name), Some(value)) => Ok((name, value)),
                _ => Err(
                    "the query is not readable: a % has two hexadecimal digits behind it, and together they are UTF-8"
                        .to_owned(),
                ),
            }
        })
        .collect()
}

/// Decodes `text` as `application/x-www-form-urlencoded`: `%XX` is a byte, `+` a blank.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let read = |query: &str| pairs(Some(query)).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read("name=a%2Ab+c&&limit=5&flag"),
            [pair("name", "a*b c"), pair("limit", "5"), pair("flag", "")]
        );
        assert_eq!(read("x=%c3%BC=1"), [pair("x", "ü=1")]);
        assert!(pairs(None).unwrap().is_empty());
        for query in ["a=%", "a=%4", "a=%zz", "a=%ff", "%=1"] {
            assert!(pairs(Some(query)).is_err(), "{query}");
        }
    }
}
