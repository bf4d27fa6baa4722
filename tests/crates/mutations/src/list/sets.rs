//! What is wrong with sets.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Databases, Decisions, Scenarios, Sets};

pub(super) const OF_SETS: &[Mutation] = &[
    Mutation {
        name: "a member gives a shard away though the load gets no more even",
        edits: &[edit(
            "src/protocol/set/share.rs",
            "if !left.should_give_to(&request.load) {",
            "if false {",
        )],
        noticed_by: &[Decisions, Sets],
    },
    Mutation {
        name: "a member gives more shards away than move at once",
        edits: &[edit(
            "src/protocol/set/share.rs",
            "if self.giving >= self.moves_at_once {",
            "if false {",
        )],
        noticed_by: &[Decisions, Sets],
    },
    Mutation {
        name: "what a member gives away counts as its own",
        edits: &[edit(
            "src/protocol/set/share.rs",
            "self.load.load.saturating_sub(self.giving)",
            "self.load.load.saturating_sub(0)",
        )],
        noticed_by: &[Decisions, Sets],
    },
    Mutation {
        name: "a member leads more than it may",
        edits: &[edit(
            "src/lock/member_load.rs",
            "self.max.is_none_or(|max| self.load < max)",
            "self.max.is_none_or(|max| self.load < max || max > 0)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "the plan gives a member more than it may lead",
        edits: &[edit(
            "src/protocol/set/plan.rs",
            "parties.iter_mut().filter(|party| party.load.has_room());",
            "parties.iter_mut().filter(|party| party.load.max != Some(0));",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "shards move before the members have settled",
        edits: &[edit(
            "src/protocol/set/mod.rs",
            "(self.settling + settle).min(longest)",
            "self.settling.min(longest)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "members that come all the time delay moves for ever",
        edits: &[edit(
            "src/protocol/set/mod.rs",
            "(self.settling + settle).min(longest)",
            "(self.settling + settle).max(longest)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a member that leads nothing is believed to be there for ever",
        edits: &[edit(
            "src/protocol/set/mod.rs",
            "member.load > 0 || answered\n",
            "member.load > 0 || answered || member.weight > 0\n",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a member asks for more shards than move at once",
        edits: &[edit(
            "src/protocol/set/moving.rs",
            "let moves = self.settings.moves_at_once as usize;",
            "let moves = self.settings.moves_at_once as usize * 8;",
        )],
        noticed_by: &[Decisions, Sets],
    },
    Mutation {
        name: "members that lead too little do not share the moves",
        edits: &[edit(
            "src/protocol/set/moving.rs",
            "(before + usize::from(member.hash < self.hash), all + 1)",
            "(before + usize::from(member.hash < self.hash), all)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a member waits for ever for others that take nothing",
        edits: &[edit(
            "src/protocol/set/moving.rs",
            "(moves / all + usize::from(before < moves % all)).max(stuck)",
            "(moves / all + usize::from(before < moves % all)).max(stuck - stuck)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a sick member gives all its shards away at once",
        edits: &[edit(
            "src/protocol/set/moving.rs",
            "(self.settings.moves_at_once as usize).saturating_sub(giving);",
            "(self.settings.shards as usize).saturating_sub(giving);",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a vacant shard goes to its last leader",
        edits: &[edit(
            "src/protocol/set/ranks.rs",
            "!others || Some(party.identity) != last",
            "!others || others || Some(party.identity) != last",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a member acquires before it knows who is there",
        edits: &[
            edit(
                "src/protocol/set/mod.rs",
                "(self.calling, self.begun, self.stale) = (false, true, true);",
                "(self.calling, self.stale) = (false, true);",
            ),
            edit(
                "src/protocol/set/mod.rs",
                "            begun: false,",
                "            begun: true,",
            ),
        ],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a member at its bound leaves its own entry alone",
        edits: &[edit("src/protocol/set/ranks.rs", "_ if own => Rank::First,", "")],
        noticed_by: &[Decisions, Sets],
    },
    Mutation {
        name: "a shard that a member takes does not come with its turn",
        edits: &[edit(
            "src/protocol/set/ranks.rs",
            "_ if state.taking.is_some() => Rank::Next,",
            "",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "an earlier process of a member is another member",
        edits: &[edit(
            "src/protocol/set/mod.rs",
            "} else if other != self.settings.identity {",
            "} else if other != self.settings.identity || other == self.settings.identity {",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "requests that move nothing are repeated as often as before",
        edits: &[edit(
            "src/protocol/set/view.rs",
            "lease.saturating_mul(1 << self.failures.min(often))",
            "lease.saturating_mul(1 << self.failures.min(often).min(0))",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a shard that comes back is given away again at once",
        edits: &[edit(
            "src/protocol/set/mod.rs",
            "if std::mem::take(&mut state.gave) {",
            "if std::mem::take(&mut state.gave) && state.failures > 1_000 {",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a shard moves in a pause, or before its term has lasted a lease",
        edits: &[
            edit(
                "src/protocol/move_types.rs",
                "!matches!(self, Self::Requested(_))",
                "!matches!(self, Self::Requested(_) | Self::Taken(_))",
            ),
            edit(
                "src/protocol/moves.rs",
                "    pub fn take(&mut self, now: Instant, request: TakeRequest) -> Result<(), Refusal> {\n        self.check_voluntary(now)?;",
                "    pub fn take(&mut self, now: Instant, request: TakeRequest) -> Result<(), Refusal> {\n        let _ = now;",
            ),
        ],
        noticed_by: &[Sets],
    },
    Mutation {
        name: "a member of second rank acquires at once",
        edits: &[edit(
            "src/protocol/turn.rs",
            "(None, Standing::Ready) if settings.rank == Rank::Second => Self::After(hold),",
            "",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a member polls as seldom as before for a shard that it asked for",
        edits: &[edit(
            "src/protocol/standby.rs",
            "if cx.settings.rank == Rank::Next {",
            "if false {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a member of the rank never acquires",
        edits: &[edit(
            "src/protocol/types.rs",
            "self.eligible && self.rank != Rank::Never",
            "self.eligible",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "members of a set hold elections by which they cannot know each other",
        edits: &[edit(
            "src/set/builder.rs",
            "if !self.lock.carries_messages() {",
            "if false && !self.lock.carries_messages() {",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "a member at its bound begins to work on one shard more",
        edits: &[edit(
            "src/set/shared.rs",
            "led.len() >= max as usize",
            "led.len() > max as usize",
        )],
        noticed_by: &[Decisions],
    },
];
