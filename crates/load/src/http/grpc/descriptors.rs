//! Messages from JSON, by the descriptions that a compiler of protocol buffers writes.
//!
//! `protoc --include_imports --descriptor_set_out=FILE` and `buf build -o FILE` write one: a `FileDescriptorSet`. JSON is read as protocol buffers
//! map it (ProtoJSON).

use std::path::Path;

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::http::plan::{Body, method_of};

/// Most names that a message lists.
const MOST_NAMES: usize = 20;

/// Services and their messages.
#[derive(Debug, Clone)]
pub struct Descriptors(DescriptorPool);

/// What does not fit the descriptions, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(String);

impl Descriptors {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub fn of_file(path: &Path) -> Result<Self, Unfit> {
        let content = Body::of_file(path).map_err(|e| Unfit(e.to_string()))?;
        let Body::Bytes(bytes) = content else { return Err(Unfit("it is empty".into())) };
        Self::decode(&bytes)
    }

    /// Reads the bytes of a file.
    fn decode(bytes: &[u8]) -> Result<Self, Unfit> {
        let pool = DescriptorPool::decode(bytes).map_err(|e| {
            Unfit(format!(
                "no set of descriptors, as protoc --descriptor_set_out writes it: {}",
                one_line(&e.to_string())
            ))
        })?;
        if pool.services().len() == 0 {
            return Err(Unfit("it describes no service".into()));
        }
        Ok(Self(pool))
    }

    /// The message that the method of this path takes, made of JSON.
    ///
    /// # Errors
    /// There is no such method, or the JSON is none of its message.
    pub fn message(&self, path: &str, json: &str) -> Result<Vec<u8>, Unfit> {
        let (service, method) = method_of(path).map_err(Unfit)?;
        let found = self.0.get_service_by_name(service).ok_or_else(|| {
            Unfit(format!(
                "there is no service '{service}': {}",
                list(self.0.services().map(|s| s.full_name().to_owned()))
            ))
        })?;
        let found = found.methods().find(|m| m.name() == method).ok_or_else(|| {
            Unfit(format!(
                "{service} has no method '{method}': {}",
                list(found.methods().map(|m| m.name().to_owned()))
            ))
        })?;
        let input = found.input();
        let name = input.full_name().to_owned();
        let mut reader = serde_json::Deserializer::from_str(json);
        let message =
            DynamicMessage::deserialize(input, &mut reader).and_then(|made| reader.end().map(|()| made));
        let message =
            message.map_err(|e| Unfit(format!("this is no {name} in JSON: {}", one_line(&e.to_string()))))?;
        Ok(message.encode_to_vec())
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let more = if names.len() > MOST_NAMES { ", ..." } else { "" };
    names.truncate(MOST_NAMES);
    format!("{}{more}", names.join(", "))
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
    use prost_reflect::prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto,
        ServiceDescriptorProto,
    };

    use super::*;

    /// What protoc writes for a service `shop.Cart` with a method `Add` that takes an `Item` of `string name = 1` and `int32 count = 2`.
    fn shop() -> Vec<u8> {
        let field = |name: &str, number, kind: Type| FieldDescriptorProto {
            name: Some(name.into()),
            number: Some(number),
            label: Some(Label::Optional.into()),
            r#type: Some(kind.into()),
            json_name: Some(name.into()),
            ..FieldDescriptorProto::default()
        };
        let item = DescriptorProto {
            name: Some("Item".into()),
            field: vec![field("name", 1, Type::String), field("count", 2, Type::Int32)],
            ..DescriptorProto::default()
        };
        let add = MethodDescriptorProto {
            name: Some("Add".into()),
            input_type: Some(".shop.Item".into()),
            output_type: Some(".shop.Item".into()),
            ..MethodDescriptorProto::default()
        };
        let cart = ServiceDescriptorProto {
            name: Some("Cart".into()),
            method: vec![add],
            ..ServiceDescriptorProto::default()
        };
        let file = FileDescriptorProto {
            name: Some("shop.proto".into()),
            package: Some("shop".into()),
            syntax: Some("proto3".into()),
            message_type: vec![item],
            service: vec![cart],
            ..FileDescriptorProto::default()
        };
        FileDescriptorSet { file: vec![file] }.encode_to_vec()
    }

    #[test]
    fn json_becomes_the_message_of_the_method() {
        let shop = Descriptors::decode(&shop()).unwrap();
        assert_eq!(
            shop.message("/shop.Cart/Add", r#"{"name":"tea","count":300}"#).unwrap(),
            b"\x0a\x03tea\x10\xac\x02"
        );
        assert_eq!(shop.message("/shop.Cart/Add", "{}").unwrap(), b"");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let described = Descriptors::decode(&shop()).unwrap();
        for (path, json, what) in [
            ("/x", "{}", "/package.Service/Method"),
            ("/shop.Till/Add", "{}", "no service 'shop.Till': shop.Cart"),
            ("/shop.Cart/Sub", "{}", "no method 'Sub': Add"),
            ("/shop.Cart/Add", "{\"nam\":1}", "no shop.Item in JSON: unrecognized field"),
            ("/shop.Cart/Add", "{\"count\":\"x\"}", "no shop.Item in JSON"),
            ("/shop.Cart/Add", "{} {}", "no shop.Item in JSON: trailing"),
            ("/shop.Cart/Add", "", "no shop.Item in JSON"),
        ] {
            let why = described.message(path, json).unwrap_err().to_string();
            assert!(why.contains(what) && !why.contains('\n'), "{path} {json}: {why}");
        }
        for (bytes, what) in [(&b"syntax = \"proto3\";"[..], "no set of descriptors"), (b"", "no service")] {
            let why = Descriptors::decode(bytes).unwrap_err().to_string();
            assert!(why.contains(what), "{why}");
        }
    }
}
