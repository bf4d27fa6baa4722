//! Each program reads and administers what the other one leads.

use incumbent_attack::record::journal::{Event, Line};
use serde_json::Value;

use crate::fleet::{Fleet, soon};
use crate::place::{ELECTION, Place};
use crate::release::Release;

/// What a program says of the election: a field that one of them does not know is no difference.
fn info(place: &Place, release: Release) -> Option<[Value; 5]> {
    let mut read = place.json(release, &["election", "info", ELECTION])?;
    let mut election = read["elections"][0].take();
    Some(["leader", "token", "address", "metadata", "vacant"].map(|field| election[field].take()))
}

/// The identities and roles of the members that answer within a time, by one program.
fn members(place: &Place, release: Release, within: &str) -> Option<Vec<[String; 2]>> {
    let words = ["election", "members", ELECTION, "--within", within];
    let read = place.json(release, &words)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members = read.as_array().expect("an array").iter();
    let mut members: Vec<_> =
        members.map(|member| ["identity", "role"].map(|field| text(&member[field]))).collect();
    members.sort();
    Some(members)
}

impl Fleet {
    /// Both programs read the same of the leader, of whichever release it is, and of its members.
    pub async fn both_read_the_same(&mut self) {
        let (place, journal) = (&self.place, &mut self.journal);
        let (read, holder) = soon("both programs read one leader and its token", || {
            let [last, this] = Release::BOTH.map(|release| info(place, release));
            let read = last.filter(|last| Some(last) == this.as_ref())?;
            journal.read();
            // A term may have begun of which there is no work yet.
            let holder = journal.holders.get(&read[1].as_u64()?)?.clone();
            Some((read, holder))
        })
        .await;
        let [leader, _token, address, metadata, vacant] = read;
        assert_eq!(leader, *holder);
        if !address.is_null() {
            assert_eq!(address, format!("{holder}.example.net:1"));
            assert_eq!(metadata["release"], holder.split('-').next().unwrap_or_default());
        }
        assert_eq!(vacant, Value::Null);
        if !self.place.calls {
            return;
        }
        let mut expected: Vec<&str> = self.members.iter().map(|member| &*member.who).collect();
        expected.sort_unstable();
        let mut within = "500ms";
        soon("both programs find all members, and their roles", || {
            let [last, this] = Release::BOTH.map(|release| members(place, release, within));
            within = "3s"; // on a busy machine they answer late
            let all = last.filter(|last| Some(last) == this.as_ref())?;
            let (identities, roles): (Vec<_>, Vec<_>) =
                all.iter().map(|[identity, role]| (&**identity, &**role)).unzip();
            let leaders = roles.iter().filter(|role| **role == "leader").count();
            (identities == expected && leaders == 1).then_some(())
        })
        .await;
    }

    /// A program of this release evicts a leader of the other one, whose members alone are there.
    pub async fn evict_with(&mut self, release: Release) {
        let words = ["election", "evict", ELECTION, "--force", "--wait", "50s"];
        // It is refused where the leader that it read has just changed.
        let (place, mut tries) = (&self.place, 0..3);
        let evicted = tries.find_map(|_| place.json(release, &words));
        let Some(evicted) = evicted else { self.fail("an eviction with a successor").await };
        let token = evicted["evicted_token"].as_u64().expect("a token");
        self.journal.read();
        let holder = self.journal.holders.get(&token);
        assert!(holder.is_none_or(|holder| evicted["evicted"] == **holder), "{evicted}");
        self.leads_after(token, "after an eviction").await;
    }

    /// A program of the release that does not lead moves the leadership to a member of its own.
    pub async fn move_to_the_other(&mut self) {
        let leader = self.leader("a leader to move from", |_| true).await;
        let release = self.members[leader].release.other();
        let to = self.members.iter().find(|member| member.release == release);
        let to = to.expect("members of both releases").who.clone();
        let words = ["election", "move", ELECTION, "--to", &to, "--wait", "50s"];
        // It is refused while the member is not ready, as after a term that it lost.
        let place = &self.place;
        let moved = soon("a move", || place.json(release, &words)).await;
        assert_eq!(moved["leader"], to, "{moved}");
        let token = moved["token"].as_u64().expect("a token");
        self.leads_after(token - 1, "after a move").await;
    }

    async fn leads_after(&mut self, token: u64, when: &str) {
        let newer = |line: &Line| matches!(line.event, Event::Work { token: of } if of > token);
        assert!(self.journal.sign(newer).await.is_some(), "{when}: nobody leads after {token}");
    }
}
