//! Checks answers of `/v1` against docs/reference/openapi.json.

use std::path::Path;

use serde_json::Value;

/// The document.
pub struct OpenApi(Value);

/// What describes a value and does not restrict it.
const ANNOTATIONS: [&str; 3] = ["description", "default", "example"];

impl OpenApi {
    pub fn read() -> OpenApi {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/openapi.json");
        let text = std::fs::read_to_string(path).expect("the document");
        OpenApi(serde_json::from_str(&text).expect("JSON"))
    }

    /// Checks an answer of a path, which may have a query.
    pub fn check(&self, method: &str, uri: &str, status: u16, body: &Value) -> Result<(), String> {
        let path = uri.split('?').next().unwrap_or_default();
        let response = match self.path(path).map(|item| &item[method.to_lowercase()]) {
            None | Some(Value::Null) if matches!(status, 404 | 405) => {
                &self.0["components"]["responses"]["NotFound"]
            }
            None => &Value::Null,
            Some(operation) => &operation["responses"][status.to_string()],
        };
        let response = self.resolved(response);
        let schema = &response["content"]["application/json"]["schema"];
        if schema.is_null() {
            return Err(format!("{method} {path} has no answer with the status {status}"));
        }
        self.check_value(schema, body, "$")
    }

    /// Returns what the document has about a path.
    fn path(&self, path: &str) -> Option<&Value> {
        let is_same = |template: &str| {
            let (parts, template): (Vec<_>, Vec<_>) =
                (path.split('/').collect(), template.split('/').collect());
            parts.len() == template.len()
                && parts.iter().zip(template).all(|(part, wanted)| {
                    *part == wanted || (wanted.starts_with('{') && !part.is_empty())
                })
        };
        let paths = self.0["paths"].as_object().expect("paths");
        paths.iter().find(|(template, _)| is_same(template)).map(|(_, item)| item)
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(pointer) => {
                let found = self.0.pointer(pointer.trim_start_matches('#'));
                found.unwrap_or_else(|| panic!("{pointer} is not in the document"))
            }
            None => value,
        }
    }

    /// Checks a value. A member that the schema does not have is an error: the document is complete.
    fn check_value(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        for (keyword, wanted) in self.resolved(schema).as_object().expect("a schema") {
            let wrong = || Err(format!("{at}: {value} does not have the {keyword} {wanted}"));
            match keyword.as_str() {
                "type" => {
                    let types = wanted.as_array().map_or(std::slice::from_ref(wanted), |it| it);
                    if !types.iter().any(|name| has_type(value, name.as_str().expect("a name"))) {
                        return wrong();
                    }
                }
                "enum" if !wanted.as_array().expect("a list").contains(value) => return wrong(),
                "minimum" if value.as_f64() < wanted.as_f64() && !value.is_null() => {
                    return wrong();
                }
                "enum" | "minimum" => {}
                "anyOf" => {
                    let schemas = wanted.as_array().expect("a list").iter();
                    let errors: Vec<String> = schemas
                        .clone()
                        .filter_map(|it| self.check_value(it, value, at).err())
                        .collect();
                    if errors.len() == schemas.len() {
                        return Err(errors.join("; "));
                    }
                }
                "items" => {
                    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check_value(wanted, item, &format!("{at}[{i}]"))?;
                    }
                }
                "required" => {
                    let names = wanted.as_array().expect("a list").iter();
                    for name in names.filter_map(Value::as_str) {
                        if value.is_object() && value.get(name).is_none() {
                            return Err(format!("{at}.{name} is missing"));
                        }
                    }
                }
                "properties" => {
                    for (name, member) in value.as_object().into_iter().flatten() {
                        let at = format!("{at}.{name}");
                        let schema = wanted.get(name);
                        let schema = schema.ok_or_else(|| format!("{at} is not documented"))?;
                        self.check_value(schema, member, &at)?;
                    }
                }
                "additionalProperties" => assert_eq!(wanted, false, "{at}"),
                other => assert!(ANNOTATIONS.contains(&other), "{at}: unknown keyword {other}"),
            }
        }
        Ok(())
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}
