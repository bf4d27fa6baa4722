//! Messages of democracy 3.1 as JSON, and what is believed of one.

use serde_json::{Map, Value, json};

use crate::util::text::{ascii_json, truncate};

/// The most bytes of an identifier, the name of an event, or a channel.
pub(super) const MAX_NAME_LEN: usize = 256;
/// The most channels of one member that are remembered.
pub(super) const MOST_CHANNELS: usize = 64;

/// What a member says of its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberState {
    Citizen,
    Leader,
    /// It has left, or is counted out.
    Removed,
}

impl MemberState {
    fn word(self) -> &'static str {
        match self {
            Self::Citizen => "citizen",
            Self::Leader => "leader",
            Self::Removed => "removed",
        }
    }

    fn read(word: &str) -> Self {
        match word {
            "leader" => Self::Leader,
            "removed" => Self::Removed,
            _ => Self::Citizen,
        }
    }
}

/// What every message but a vote says of its sender.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Profile {
    pub weight: f64,
    pub standing: MemberState,
    pub channels: Vec<String>,
}

/// What a message is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    Hello,
    Leader,
    /// Its sender has not heard from this member for too long.
    Vote(String),
    Subscribe(String),
    /// Anything that is none of the protocol's own events.
    Custom(String, Value),
}

/// A message that was understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub id: String,
    /// `None` where the sender says nothing of itself, as in a vote.
    pub profile: Option<Profile>,
    pub said: Body,
}

impl Message {
    /// Reads one; `None` for what is none. `document` is what a datagram, or the chunks of several, say.
    pub fn read(document: &Value) -> Option<Self> {
        let fields = document.as_object()?;
        let id = name(fields.get("id")?)?;
        let event = name(fields.get("event")?)?;
        let said = match event.as_str() {
            "hello" => Body::Hello,
            "leader" => Body::Leader,
            "vote" => Body::Vote(name(fields.get("candidate")?)?),
            "subscribe" => Body::Subscribe(name(fields.get("extra")?.get("channel")?)?),
            _ => Body::Custom(event, fields.get("extra").cloned().unwrap_or_default()),
        };
        Some(Self { id, profile: profile(fields), said })
    }
}

fn profile(fields: &Map<String, Value>) -> Option<Profile> {
    let channels = fields.get("channels").and_then(Value::as_array);
    Some(Profile {
        weight: fields.get("weight")?.as_f64()?,
        standing: MemberState::read(fields.get("state")?.as_str()?),
        channels: channels.into_iter().flatten().filter_map(name).take(MOST_CHANNELS).collect(),
    })
}

/// JavaScript takes a number for a name as well.
fn name(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (!text.is_empty() && text == truncate(&text, MAX_NAME_LEN)).then_some(text)
}

/// The JSON of a message, in ASCII: democracy's decoder carries half a character over into the next datagram.
pub(super) fn write(id: &str, profile: &Profile, source: &str, said: &Body) -> String {
    let (event, extra) = match said {
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
        "state": profile.standing.word(),
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
    fn a_message_of_nodes_is_read() {
        let said = json!({
            "event": "hello", "id": "PPBqWA9", "weight": 1_527_000_000_000.25, "state": "leader",
            "channels": ["a", 7, {}], "source": "127.0.0.1:12345",
        });
        let read = Message::read(&said).unwrap();
        assert_eq!((read.id.as_str(), &read.said), ("PPBqWA9", &Body::Hello));
        let profile = read.profile.unwrap();
        assert_eq!(profile.channels, ["a", "7"]);
        assert_eq!((profile.standing, profile.weight), (MemberState::Leader, 1_527_000_000_000.25));
    }

    #[test]
    fn what_is_written_is_read_again_and_is_ascii() {
        let profile = Profile {
            weight: 1.5,
            standing: MemberState::Citizen,
            channels: vec!["größe".to_owned()],
        };
        for said in [
            Body::Hello,
            Body::Leader,
            Body::Vote("é".to_owned()),
            Body::Subscribe("日本".to_owned()),
            Body::Custom("ciao".to_owned(), json!({ "hello": "wörld" })),
        ] {
            let text = write("ä", &profile, "127.0.0.1:1", &said);
            assert!(text.is_ascii());
            let read = Message::read(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!((read.id.as_str(), &read.said), ("ä", &said));
            assert!(matches!(read.said, Body::Vote(_)) || read.profile == Some(profile.clone()));
        }
    }
}
