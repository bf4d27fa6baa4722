//! Candidates of other programs. Each program says how a process of it reacts to what happens to
//! it; what all of them have is here.

use std::time::Duration;

use crate::choria::{self, Choria};
use crate::clientgo::{self, ClientGo};
use crate::objects::{self, Vimeo};
use crate::server::{Server, Time};
use crate::world::{SimEvent, World};

/// One of them, with its link.
#[derive(Debug)]
pub(super) struct Peer {
    /// Which process this is.
    life: u32,
    pub cut_until: Time,
    /// `None` while it reacts.
    program: Option<Program>,
}

#[derive(Debug)]
pub(super) enum Program {
    Choria(Choria),
    ClientGo(ClientGo),
    Vimeo(Vimeo),
}

/// What happens to one.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Choria(choria::Step),
    ClientGo(clientgo::Step),
    Vimeo(objects::Step),
}

impl From<choria::Step> for Step {
    fn from(step: choria::Step) -> Self {
        Self::Choria(step)
    }
}
impl From<clientgo::Step> for Step {
    fn from(step: clientgo::Step) -> Self {
        Self::ClientGo(step)
    }
}
impl From<objects::Step> for Step {
    fn from(step: objects::Step) -> Self {
        Self::Vimeo(step)
    }
}

impl Program {
    /// With what a process begins, and within how many milliseconds from the start of the world.
    pub fn begins(&self) -> (Step, u64) {
        match self {
            Self::Choria(_) => (choria::Step::Tick.into(), 5000),
            Self::ClientGo(_) => (clientgo::Step::Try.into(), 2000),
            Self::Vimeo(_) => (objects::Step::Look.into(), 2000),
        }
    }

    /// A process dies: the next one knows nothing.
    fn crash(&mut self) {
        match self {
            Self::Choria(choria) => choria.crash(),
            Self::ClientGo(go) => go.crash(),
            Self::Vimeo(vimeo) => vimeo.crash(),
        }
    }

    fn react(&mut self, link: &mut Link<'_>, step: Step) {
        match (self, step) {
            (Self::Choria(choria), Step::Choria(step)) => choria.react(link, step),
            (Self::ClientGo(go), Step::ClientGo(step)) => go.react(link, step),
            (Self::Vimeo(vimeo), Step::Vimeo(step)) => vimeo.react(link, step),
            (program, step) => unreachable!("{step:?} of {program:?}"),
        }
    }
}

/// What a process has of the world.
pub(super) struct Link<'a> {
    pub world: &'a mut World,
    pub which: usize,
    /// Whether what happens is of the process that runs now.
    pub is_current: bool,
    /// Whether the process is cut off.
    pub cut: bool,
}

impl Link<'_> {
    pub fn now(&self) -> Time {
        self.world.time.now
    }

    pub fn server(&mut self) -> &mut Server {
        &mut self.world.servers[0]
    }

    pub fn log(&mut self, line: impl FnOnce() -> String) {
        self.world.time.log(line);
    }

    /// It leads from now on, or no longer does.
    pub fn leads(&mut self, leads: bool) {
        self.world.checker.peer(self.which, leads, self.world.time.now);
    }

    pub fn later(&mut self, after: Duration, step: impl Into<Step>) {
        let (which, step) = (self.which, step.into());
        let life = self.world.peers[which].life;
        self.world.time.after(after, SimEvent::Peer { which, life, step });
    }

    /// Sends what arrives as `step`, unless it is cut off or lost.
    pub fn sends(&mut self, step: impl Into<Step>) {
        if let Some(after) = self.world.time.passage(0.05).filter(|_| !self.cut) {
            self.later(after, step);
        }
    }

    /// It is sent `step`, which may be lost on its way.
    pub fn answers(&mut self, loss: f64, step: impl Into<Step>) {
        if let Some(after) = self.world.time.passage(loss) {
            self.later(after, step);
        }
    }
}

impl World {
    pub(super) fn add_peer(&mut self, program: Program) {
        self.peers.push(Peer { life: 0, cut_until: Time::ZERO, program: Some(program) });
    }

    /// Something happens to the process `life` of a peer.
    pub(super) fn step_peer(&mut self, which: usize, life: u32, step: Step) {
        self.with_peer(which, life, |program, link| program.react(link, step));
    }

    fn with_peer(
        &mut self,
        which: usize,
        life: u32,
        reacts: impl FnOnce(&mut Program, &mut Link<'_>),
    ) {
        let peer = &mut self.peers[which];
        let (is_current, cut) = (peer.life == life, self.time.now < peer.cut_until);
        let Some(mut program) = peer.program.take() else { return };
        reacts(&mut program, &mut Link { world: self, which, is_current, cut });
        self.peers[which].program = Some(program);
    }

    /// It dies, and starts again a little later.
    pub(super) fn crash_peer(&mut self, which: usize) {
        let Some(peer) = self.peers.get_mut(which) else { return };
        peer.life += 1;
        // Choria's next process is behind the same cut.
        if !matches!(peer.program, Some(Program::Choria(_))) {
            peer.cut_until = Time::ZERO;
        }
        let (life, Some(program)) = (peer.life, &mut peer.program) else { return };
        program.crash();
        let (step, _) = program.begins();
        self.checker.peer(which, false, self.time.now);
        self.time.after(Duration::from_millis(500), SimEvent::Peer { which, life, step });
    }

    /// It is stopped: client-go's release what they hold.
    pub(super) fn stop_peer(&mut self, which: usize) {
        let Some(life) = self.peers.get(which).map(|peer| peer.life) else { return };
        self.with_peer(which, life, |program, link| {
            if let Program::ClientGo(go) = program {
                go.stops(link);
            }
        });
        self.crash_peer(which);
    }
}
