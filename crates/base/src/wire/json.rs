//! JSON that others have made: reading it into types, and changing it. `value["key"]` as a place panics where the value is no object:
//! these do not.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads `value`; nothing of it where it has another shape.
pub fn typed<'a, T: Deserialize<'a> + Default>(value: &'a Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

/// The same, where nothing else needs `value`: its texts are not copied.
pub fn into_typed<T: DeserializeOwned + Default>(value: Value) -> T {
    serde_json::from_value(value).unwrap_or_default()
}

/// Reads what an object has at `key`; nothing where it has none, or one of another shape.
pub fn typed_at<'a, T: Deserialize<'a> + Default>(value: &'a Value, key: &str) -> T {
    value.get(key).map(typed).unwrap_or_default()
}

/// Takes what an object has at `key`, and leaves `null` there; `null` of anything else.
pub fn take(value: &mut Value, key: &str) -> Value {
    value.get_mut(key).map(Value::take).unwrap_or_default()
}

/// Writes `new` at `key` of an object; anything else stays as it is.
pub fn put(value: &mut Value, key: &str, new: impl Into<Value>) {
    if let Some(object) = value.as_object_mut() {
        object.insert(key.to_owned(), new.into());
    }
}

/// What an object has at `key`, where need be `null` from now on; anything else itself.
pub fn at<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    match value {
        Value::Object(object) => object.entry(key).or_insert(Value::Null),
        other => other,
    }
}

/// The list that an object has at `key`; an empty one where it has none.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value.get(key).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Reads each of that list by [`typed`].
pub fn typed_list<'a, T: Deserialize<'a> + Default>(
    value: &'a Value,
    key: &str,
) -> impl Iterator<Item = T> + use<'a, T> {
    list(value, key).iter().map(typed)
}

/// The list, to be changed.
pub fn list_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    value.get_mut(key)?.as_array_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_shapes_stay_as_they_are() {
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
