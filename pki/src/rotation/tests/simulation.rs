//! A site with several nodes on virtual time. Operators order what they like, right or wrong; nodes sleep and come back. At every
//! moment every node, whatever charter it has, must accept the live leaf of every other: that is what the guards are for.

use proptest::prelude::*;

use super::*;

const HOUR: i64 = 3600;
const LEAF: i64 = DAY;

/// What a node has.
#[derive(Clone)]
struct Node {
    name: String,
    /// What it believes: `None` before its first report.
    charter: Option<CharterView>,
    leaf: Option<Leaf>,
    /// Asleep until then.
    asleep: i64,
    /// The reissue that it has followed.
    generation: u64,
}

#[derive(Clone, Debug)]
struct Leaf {
    ca: KeyHash,
    root: KeyHash,
    issued: i64,
    not_after: i64,
}

struct World {
    now: i64,
    state: State,
    fleet: Fleet,
    /// The charter in force at the issuer.
    charter: CharterView,
    nodes: Vec<Node>,
    /// Names of CAs and roots made so far.
    made: u32,
    roots: Vec<String>,
    /// Facts of every CA that was ever made.
    cas: Vec<CaFacts>,
    carried_out: Vec<&'static str>,
    refused: usize,
}

impl World {
    fn new(nodes: usize) -> Self {
        let mut state = State { longest_leaf: LEAF, ..State::default() };
        state.trust(&[key("root0")], START);
        let first = ca("ca0", "root0", START, 90);
        assert!(state.adopt(&first, START));
        let charter = view(1, &[("root0", RootState::Active)], &[("ca0", CaState::Active)]);
        let mut fleet = Fleet::default();
        carry_out(&mut state, &order(Command::Publish(charter.clone())), &mut fleet, START).unwrap();
        let node = |index: usize| Node {
            name: format!("n{index}"),
            charter: None,
            leaf: None,
            asleep: 0,
            generation: 0,
        };
        let mut world = Self {
            now: START,
            state,
            fleet,
            charter,
            nodes: (0..nodes).map(node).collect(),
            made: 0,
            roots: vec!["root0".into()],
            cas: vec![first],
            carried_out: Vec::new(),
            refused: 0,
        };
        world.sync();
        world
    }

    /// Awake nodes take the charter, renew at half life or when told to, and report.
    fn sync(&mut self) {
        let reissue = self.state.reissue.as_ref().map_or(0, |reissue| reissue.generation);
        for node in self.nodes.iter_mut().filter(|node| node.asleep <= self.now) {
            node.charter = Some(self.charter.clone());
            let fresh = node.leaf.as_ref().is_some_and(|leaf| self.now < leaf.issued + LEAF / 2);
            if let Some(active) = self.state.active().filter(|_| !fresh || node.generation < reissue) {
                let certificate = active.certificate.clone().unwrap();
                if certificate.not_after > self.now {
                    let not_after = (self.now + LEAF).min(certificate.not_after);
                    let (ca, root) = (certificate.key, certificate.root);
                    node.leaf = Some(Leaf { ca, root, issued: self.now, not_after });
                    node.generation = reissue;
                }
            }
            let leaf = node.leaf.as_ref();
            let report = Report {
                charter_sequence: self.charter.sequence,
                svid_issuer: leaf.map(|leaf| leaf.ca.clone()),
                svid_not_after: leaf.map_or(0, |leaf| leaf.not_after),
                at: self.now,
                ..Report::default()
            };
            self.fleet.report(&node.name, report).unwrap();
        }
    }

    fn order(&mut self, command: Command) -> bool {
        let name = command.name();
        let order = Order { command, override_reason: None, istio_checked: Some("east, west".into()) };
        let view = match &order.command {
            Command::Publish(view) | Command::RetireRoot(view) => Some(view.clone()),
            _ => None,
        };
        match carry_out(&mut self.state, &order, &mut self.fleet, self.now) {
            Ok(_) => {
                self.charter = view.unwrap_or_else(|| self.charter.clone());
                self.carried_out.push(name);
                true
            }
            Err(_) => {
                self.refused += 1;
                false
            }
        }
    }

    /// Time goes on; the daemon does what is due.
    fn pass(&mut self, seconds: i64) {
        let end = self.now + seconds;
        while self.now < end {
            self.now = (self.now + HOUR).min(end);
            if let Some(command) = self.state.due(self.now) {
                self.order(command);
            }
            self.check();
            self.sync();
            self.check();
        }
    }

    fn prepare(&mut self, root: &str) -> bool {
        if !self.order(Command::Prepare) {
            return false;
        }
        self.made += 1;
        let facts = ca(&format!("ca{}", self.made), root, self.now, 90);
        self.state.request(facts.key.clone(), self.now);
        self.cas.push(facts.clone());
        self.order(Command::Install(facts))
    }

    /// The charter that a careful person would write next: every living CA pinned, these roots.
    fn careful(&self, roots: &[String]) -> CharterView {
        let word = |ca: &Ca| match ca.phase {
            Phase::Active => Some(CaState::Active),
            Phase::Prepared => Some(CaState::Prepared),
            Phase::Retiring(_) => Some(CaState::Retiring),
            Phase::Tainted | Phase::Revoked => Some(CaState::Revoked),
            Phase::Requested | Phase::Gone => None,
        };
        let pins = self.state.cas.iter().filter_map(|ca| word(ca).map(|word| (ca.key.clone(), word)));
        CharterView {
            sequence: self.charter.sequence + 1,
            refresh_hint: 300,
            roots: roots.iter().map(|root| RootView { key: key(root), state: RootState::Active }).collect(),
            pins: pins.collect(),
        }
    }

    /// Everybody accepts everybody's live leaf, tainted CAs' apart.
    fn check(&self) {
        let tainted: Vec<&KeyHash> = self.state.tainted().collect();
        let live = self.nodes.iter().filter_map(|node| node.leaf.as_ref().map(|leaf| (node, leaf)));
        for (owner, leaf) in
            live.filter(|(_, leaf)| leaf.not_after >= self.now && !tainted.contains(&&leaf.ca))
        {
            for verifier in &self.nodes {
                let Some(charter) = &verifier.charter else { continue };
                let root = charter.roots.iter().any(|root| root.key == leaf.root);
                let pinned = charter.pin(&leaf.ca).is_some_and(CaState::is_believed);
                assert!(
                    root && pinned,
                    "{} with charter {} refuses {}'s leaf (root known: {root}, CA believed: {pinned})\n{:?}\n{:?}",
                    verifier.name,
                    charter.sequence,
                    owner.name,
                    self.carried_out,
                    self.state,
                );
            }
        }
    }
}

#[test]
fn a_year_of_rotations_with_nodes_that_sleep() {
    let mut world = World::new(5);
    let mut roots_changed = 0;
    for week in 0..52_usize {
        // Somebody always sleeps, for some days or for a month.
        let sleeper = week % 5;
        world.nodes[sleeper].asleep = world.now + if week % 7 == 0 { 30 * DAY } else { 3 * DAY };
        let root = world.roots.last().unwrap().clone();
        if week % 6 == 1 {
            world.prepare(&root);
            let careful = world.careful(&world.roots.clone());
            world.order(Command::Publish(careful));
        }
        if week % 17 == 10 {
            let new = format!("root{}", world.roots.len() + roots_changed);
            world.roots.push(new.clone());
            let careful = world.careful(&world.roots.clone());
            if world.order(Command::Publish(careful)) {
                world.prepare(&new);
                world.pass(DAY);
                let careful = world.careful(&world.roots.clone());
                world.order(Command::Publish(careful));
            } else {
                world.roots.pop();
            }
        }
        for command in [Command::ActivateRoot, Command::Activate, Command::Leaf] {
            world.order(command);
            world.pass(DAY);
        }
        if world.roots.len() > 1
            && world.state.active().unwrap().root() == Some(&key(world.roots.last().unwrap()))
        {
            let last = vec![world.roots.last().unwrap().clone()];
            let careful = world.careful(&last);
            if world.order(Command::RetireRoot(careful)) {
                (world.roots, roots_changed) = (last, roots_changed + 1);
            }
        }
        world.pass(START + (i64::try_from(week).unwrap() + 1) * 7 * DAY - world.now);
    }
    let count = |name| world.carried_out.iter().filter(|done| **done == name).count();
    assert!(count("intermediate activate") >= 3, "{:?}", world.carried_out);
    assert!(roots_changed >= 1 && count("root activate") >= 1, "{:?}", world.carried_out);
    assert!(count("intermediate retire") >= 3 && count("leaf") >= 40);
    assert!(world.refused > 10, "sleepers must have held something back");
    // Nobody was left without a leaf: the last sleepers are back.
    world.pass(31 * DAY);
    assert!(world.nodes.iter().all(|node| node.leaf.as_ref().is_some_and(|leaf| leaf.not_after > world.now)));
}

/// What an operator may do, sensible or not.
#[derive(Clone, Debug)]
enum Act {
    Prepare,
    PublishCareful,
    PublishNewRoot,
    PublishWild { pins: u8, roots: u8 },
    DropOldRoot,
    DropWild { roots: u8 },
    Activate,
    ActivateRoot,
    Retire,
    Leaf,
    Taint(u8),
    Sleep { node: u8, hours: u8 },
    Pass { hours: u8 },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Prepare),
        Just(Act::PublishCareful),
        Just(Act::PublishNewRoot),
        (any::<u8>(), any::<u8>()).prop_map(|(pins, roots)| Act::PublishWild { pins, roots }),
        Just(Act::DropOldRoot),
        any::<u8>().prop_map(|roots| Act::DropWild { roots }),
        Just(Act::Activate),
        Just(Act::ActivateRoot),
        Just(Act::Retire),
        Just(Act::Leaf),
        any::<u8>().prop_map(Act::Taint),
        (any::<u8>(), 1..100_u8).prop_map(|(node, hours)| Act::Sleep { node, hours }),
        (1..60_u8).prop_map(|hours| Act::Pass { hours }),
        (1..60_u8).prop_map(|hours| Act::Pass { hours }),
    ]
}

impl World {
    fn act(&mut self, act: &Act) {
        match act {
            Act::Prepare => {
                let root = self.roots.last().unwrap().clone();
                self.prepare(&root);
            }
            Act::PublishCareful => {
                let careful = self.careful(&self.roots.clone());
                self.order(Command::Publish(careful));
            }
            Act::PublishNewRoot => {
                self.made += 1;
                let mut roots = self.roots.clone();
                roots.push(format!("root-of-{}", self.made));
                let careful = self.careful(&roots);
                if self.order(Command::Publish(careful)) {
                    self.roots = roots;
                }
            }
            Act::PublishWild { pins, roots } => {
                let view = self.wild(*pins, *roots);
                self.order(Command::Publish(view));
            }
            Act::DropOldRoot => self.drop(vec![self.roots.last().unwrap().clone()]),
            Act::DropWild { roots } => {
                let kept = self.subset(*roots);
                self.drop(kept);
            }
            Act::Activate => drop(self.order(Command::Activate)),
            Act::ActivateRoot => drop(self.order(Command::ActivateRoot)),
            Act::Retire => drop(self.order(Command::Retire)),
            Act::Leaf => drop(self.order(Command::Leaf)),
            Act::Taint(which) => {
                let which = self.state.cas[usize::from(*which) % self.state.cas.len()].key.clone();
                self.order(Command::Taint(which));
            }
            Act::Sleep { node, hours } => {
                let index = usize::from(*node) % self.nodes.len();
                self.nodes[index].asleep = self.now + i64::from(*hours) * HOUR;
            }
            Act::Pass { hours } => self.pass(i64::from(*hours) * HOUR),
        }
        self.check();
    }

    fn subset(&self, bits: u8) -> Vec<String> {
        let picked = self.roots.iter().enumerate().filter(|(index, _)| bits >> (index % 8) & 1 == 1);
        picked.map(|(_, root)| root.clone()).collect()
    }

    fn drop(&mut self, kept: Vec<String>) {
        let mut view = self.careful(&kept);
        // What a charter says must hold by itself: no believed CA without its root.
        view.pins.retain(|(pin, word)| !word.is_believed() || self.under(pin, &view.roots));
        if !kept.is_empty() && self.order(Command::RetireRoot(view)) {
            self.roots = kept;
        }
    }

    /// Pins and roots left out at random.
    fn wild(&self, pins: u8, roots: u8) -> CharterView {
        let kept = self.subset(roots | 1);
        let mut view = self.careful(&kept);
        let mut index = 0;
        view.pins.retain(|(pin, word)| {
            index += 1;
            pins >> (index % 8) & 1 == 1 && (!word.is_believed() || self.under(pin, &view.roots))
        });
        view
    }

    fn under(&self, pin: &KeyHash, roots: &[RootView]) -> bool {
        let root = self.cas.iter().find(|ca| ca.key == *pin).map(|ca| &ca.root);
        roots.iter().any(|known| Some(&known.key) == root)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// No sequence of commands that the guards let through leaves a live leaf that somebody refuses.
    #[test]
    fn no_sequence_of_commands_cuts_anybody_off(acts in proptest::collection::vec(act(), 1..60)) {
        let mut world = World::new(3);
        world.check();
        for act in &acts {
            let before = (world.state.charter_sequence(), world.state.bundle_sequence);
            world.act(act);
            prop_assert!(world.state.charter_sequence() >= before.0 && world.state.bundle_sequence >= before.1);
            prop_assert!(world.state.cas.iter().filter(|ca| ca.phase == Phase::Active).count() <= 1);
        }
    }
}
