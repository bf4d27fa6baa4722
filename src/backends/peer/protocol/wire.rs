//! Messages of democracy 3.1 as JSON, and their validation.

use serde_json::{Map, Value, json};

use crate::util::text::{ascii_json, truncate};

/// The maximum length in bytes of an identifier, an event name, or a channel.
pub(super) const MAX_NAME_LEN: usize = 256;
/// The maximum number of remembered channels of one member.
pub(super) const MAX_CHANNELS: usize = 64;

/// The state of a member, as it reports itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberState {
    Citizen,
    Leader,
    /// The member has left, or is removed.
    Removed,
}

impl MemberState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Citizen => "citizen",
            Self::Leader => "leader",
            Self::Removed => "removed",
        }
    }

    fn read(state: &str) -> Self {
        match state {
            "leader" => Self::Leader,
            "removed" => Self::Removed,
            _ => Self::Citizen,
        }
    }
}

/// The fields on the sender, which every message but a vote contains.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Profile {
    pub weight: f64,
    pub standing: MemberState,
    pub channels: Vec<String>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    Hello,
    Leader,
    /// The sender has received nothing from this member for too long.
    Vote(String),
    Subscribe(String),
    /// Any event that is not one of the protocol's own.
    Custom(String, Value),
}

/// A parsed message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub id: String,
    /// `None` if the message has no fields on its sender, as a vote.
    pub profile: Option<Profile>,
    pub body: Body,
}

impl Message {
    /// Parses a message; `None` if `document` is not one. `document` is the content of a datagram,
    /// or of the chunks of several.
    pub fn read(document: &Value) -> Option<Self> {
        let fields = document.as_object()?;
        let id = name(fields.get("id")?)?;
        let event = name(fields.get("event")?)?;
        let body = match event.as_str() {
            "hello" => Body::Hello,
            "leader" => Body::Leader,
            "vote" => Body::Vote(name(fields.get("candidate")?)?),
            "subscribe" => Body::Subscribe(name(fields.get("extra")?.get("channel")?)?),
            _ => Body::Custom(event, fields.get("extra").cloned().unwrap_or_default()),
        };
        Some(Self { id, profile: profile(fields), body })
    }
}

fn profile(fields: &Map<String, Value>) -> Option<Profile> {
    let channels = fields.get("channels").and_then(Value::as_array);
    Some(Profile {
        weight: fields.get("weight")?.as_f64()?,
        standing: MemberState::read(fields.get("state")?.as_str()?),
        channels: channels.into_iter().flatten().filter_map(name).take(MAX_CHANNELS).collect(),
    })
}

/// A name, or a number, which JavaScript accepts as a name.
fn name(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (!text.is_empty() && text == truncate(&text, MAX_NAME_LEN)).then_some(text)
}

/// Returns the JSON of a message, in ASCII: democracy's decoder carries half a character over into
/// the next datagram.
pub(super) fn write(id: &str, profile: &Profile, source: &str, body: &Body) -> String {
    let (event, extra) = match body {
        Body::Vote(candidate) => {
            let vote =
                json!({ "event": "vote", "id": id, "candidate": candidate, "source": source });
            return ascii_json(&vote.to_string());
        }
        Body::Hello => ("hello", Value::Null),
        Body::Leader => ("leader", Value::Null),
        Body::Subscribe(channel) => ("subscribe", json!({ "channel": channel })),
        Body::Custom(event, data) => (event.as_str(), data.clone()),
    };
    let mut message = json!({
        "event": event,
        "id": id,
        "weight": profile.weight,
        "state": profile.standing.as_str(),
        "channels": profile.channels,
        "source": source,
    });
    if let (Value::Object(fields), false) = (&mut message, extra.is_null()) {
        fields.insert("extra".to_owned(), extra);
    }
    ascii_json(&message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_node_is_parsed() {
        let body = json!({
            "event": "hello", "id": "PPBqWA9", "weight": 1_527_000_000_000.25, "state": "leader",
            "channels": ["a", 7, {}], "source": "127.0.0.1:12345",
        });
        let read = Message::read(&body).unwrap();
        assert_eq!((read.id.as_str(), &read.body), ("PPBqWA9", &Body::Hello));
        let profile = read.profile.unwrap();
        assert_eq!(profile.channels, ["a", "7"]);
        assert_eq!((profile.standing, profile.weight), (MemberState::Leader, 1_527_000_000_000.25));
    }

    #[test]
    fn messages_round_trip_in_ascii() {
        let profile = Profile {
            weight: 1.5,
            standing: MemberState::Citizen,
            channels: vec!["größe".to_owned()],
        };
        for body in [
            Body::Hello,
            Body::Leader,
            Body::Vote("é".to_owned()),
            Body::Subscribe("日本".to_owned()),
            Body::Custom("ciao".to_owned(), json!({ "hello": "wörld" })),
        ] {
            let text = write("ä", &profile, "127.0.0.1:1", &body);
            assert!(text.is_ascii());
            let read = Message::read(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!((read.id.as_str(), &read.body), ("ä", &body));
            assert!(matches!(read.body, Body::Vote(_)) || read.profile == Some(profile.clone()));
        }
    }
}
