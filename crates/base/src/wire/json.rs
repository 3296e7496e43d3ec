//! Helpers for JSON from outside: parsing into types, and editing. Assigning to `value["key"]` panics if the value is
//! no object; these do not.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses `value`; the default if it has another shape.
pub fn typed<'a, T: Deserialize<'a> + Default>(value: &'a Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

/// The same for an owned `value`: its texts are not copied.
pub fn into_typed<T: DeserializeOwned + Default>(value: Value) -> T {
    serde_json::from_value(value).unwrap_or_default()
}

/// Parses the value at `key` of an object; the default if there is none, or one of another shape.
pub fn typed_at<'a, T: Deserialize<'a> + Default>(value: &'a Value, key: &str) -> T {
    value.get(key).map(typed).unwrap_or_default()
}

/// Removes the value at `key` of an object, and leaves `null` there; `null` for anything else.
pub fn take(value: &mut Value, key: &str) -> Value {
    value.get_mut(key).map(Value::take).unwrap_or_default()
}

/// Sets `key` of an object to `new`; anything else stays unchanged.
pub fn put(value: &mut Value, key: &str, new: impl Into<Value>) {
    if let Some(object) = value.as_object_mut() {
        object.insert(key.to_owned(), new.into());
    }
}

/// The value at `key` of an object, inserted as `null` if missing; for anything else, the value itself.
pub fn at<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    match value {
        Value::Object(object) => object.entry(key).or_insert(Value::Null),
        other => other,
    }
}

/// The list at `key` of an object; an empty one if there is none.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value.get(key).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Parses each element of that list with [`typed`].
pub fn typed_list<'a, T: Deserialize<'a> + Default>(
    value: &'a Value,
    key: &str,
) -> impl Iterator<Item = T> + use<'a, T> {
    list(value, key).iter().map(typed)
}

/// The list, mutable.
pub fn list_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    value.get_mut(key)?.as_array_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_json_types_are_unchanged() {
        for other in [json!([1]), json!("x"), json!(1), json!(true), Value::Null] {
            let mut value = other.clone();
            assert_eq!(take(&mut value, "a"), Value::Null);
            assert_eq!(list_mut(&mut value, "a"), None);
            assert!(list(&value, "a").is_empty());
            put(&mut value, "a", 1);
            assert_eq!(at(&mut value, "a"), &other);
            assert_eq!(value, other);
            assert_eq!(typed_at::<u8>(&value, "a"), 0);
            assert!(typed::<Vec<u16>>(&json!([value, "a"])).is_empty());
        }
        let mut value = json!({"a": [1]});
        assert_eq!(list(&value, "a"), [1]);
        assert_eq!(typed_list::<u8>(&value, "a").collect::<Vec<_>>(), [1]);
        list_mut(&mut value, "a").into_iter().for_each(Vec::clear);
        put(&mut value, "b", 2);
        assert_eq!(value, json!({"a": [], "b": 2}));
        assert_eq!(typed_at::<u8>(&value, "b"), 2);
        assert_eq!(take(&mut value, "b"), json!(2));
    }
}
