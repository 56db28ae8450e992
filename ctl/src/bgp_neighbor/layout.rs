//! One session on a page.

use super::{Bfd, Family, GracefulRestart, LastError, NeighborDocument, Notification};
use crate::bgp::state_cell;
use crate::moment::{Moment, age};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;

impl Document for NeighborDocument {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        self.lay_out_facts(now, page);
        page.line("");
        self.lay_out_timers(page);
        page.line("");
        self.lay_out_families(page);
        page.line("");
        self.lay_out_messages(page);
        page.line("");
        self.lay_out_capabilities(page);
    }
}

impl NeighborDocument {
    fn lay_out_facts(&self, now: Moment, page: &mut Page) {
        let asn = u64::from;
        page.facts([
            ("Name", self.name.as_str().into()),
            ("Address", self.address.as_str().into()),
            ("Local address", self.local_address.as_deref().unwrap_or("").into()),
            ("Local AS", asn(self.local_asn).into()),
            ("Remote AS", asn(self.remote_asn).into()),
            ("Remote router ID", self.remote_router_id.as_deref().unwrap_or("").into()),
            ("State", state_cell(&self.state)),
            ("Reason", self.state_reason.as_str().into()),
            ("Since", age(self.state_since, now).into()),
            ("Times established", format!("{}, ended {}", self.established_count, self.flaps).into()),
            ("Last error", self.last_error.as_ref().map(|error| error.words(now)).unwrap_or_default().into()),
            ("NOTIFICATION", self.last_notification().map(Notification::words).unwrap_or_default().into()),
            ("Import policy", self.import_policy.as_str().into()),
            ("Export policy", self.export_policy.as_str().into()),
            ("Role", self.role.as_deref().unwrap_or("").into()),
            ("Graceful restart", self.restart_words().into()),
            ("BFD", self.bfd.as_ref().map(Bfd::cell).unwrap_or_else(|| "".into())),
            ("Prefixes", self.prefixes().into()),
            ("Faulty UPDATEs", self.update_faults.into()),
        ]);
        let told = self.remarks();
        if !told.is_empty() {
            page.line("");
            told.into_iter().for_each(|remark| page.line(remark));
        }
    }

    fn prefixes(&self) -> String {
        format!(
            "{} received, {} filtered, {} accepted, {} best, {} stale, {} sent",
            self.prefixes_received,
            self.prefixes_filtered,
            self.prefixes_accepted,
            self.prefixes_best,
            self.prefixes_stale,
            self.prefixes_sent
        )
    }

    fn restart_words(&self) -> String {
        self.graceful_restart.as_ref().map(GracefulRestart::words).unwrap_or_default()
    }

    /// What is not so with most neighbors, and what a person should look at.
    fn remarks(&self) -> Vec<String> {
        let dynamic = self.dynamic.then(|| "made from a template when it connected".to_owned());
        let held_back =
            self.held_back.as_ref().map(|family| format!("held back: it is sent no more {family} prefixes"));
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}"));
        dynamic.into_iter().chain(held_back).chain(warnings).collect()
    }

    fn last_notification(&self) -> Option<&Notification> {
        self.last_error.as_ref()?.notification.as_ref()
    }

    fn lay_out_timers(&self, page: &mut Page) {
        let duration = |of: Option<u64>| of.map(text::milliseconds).unwrap_or_default();
        let rows = self.timers.iter().map(|timer| {
            [
                timer.name.as_str().into(),
                duration(timer.configured_ms).into(),
                duration(timer.agreed_ms).into(),
                duration(timer.remaining_ms).into(),
            ]
        });
        page.table(["TIMER", "CONFIGURED", "AGREED", "REMAINING"], rows, "no timers");
    }

    fn lay_out_families(&self, page: &mut Page) {
        let rows = self.families.iter().map(|family| {
            [
                family.family.as_str().into(),
                yes(family.agreed).into(),
                yes(family.end_of_rib).into(),
                family.received.into(),
                family.limit.into(),
                family.accepted.into(),
                family.best.into(),
                family.stale.into(),
                family.sent.into(),
                family.several().into(),
            ]
        });
        let header = [
            "FAMILY", "AGREED", "COMPLETE", "RECEIVED", "LIMIT", "ACCEPTED", "BEST", "STALE", "SENT",
            "ADD-PATH",
        ];
        page.table(header, rows, "no families");
    }

    fn lay_out_messages(&self, page: &mut Page) {
        let rows = self
            .messages
            .iter()
            .map(|messages| [messages.kind.as_str().into(), messages.received.into(), messages.sent.into()]);
        page.table(["MESSAGES", "RECEIVED", "SENT"], rows, "no messages");
    }

    fn lay_out_capabilities(&self, page: &mut Page) {
        let rows = self.capabilities.iter().map(|capability| {
            [yes(capability.sent).into(), yes(capability.received).into(), capability.name.as_str().into()]
        });
        page.table(["SENT", "RECEIVED", "CAPABILITY"], rows, "no capabilities");
    }
}

impl Family {
    fn several(&self) -> &'static str {
        match (self.several_in, self.several_out) {
            (true, true) => "both ways",
            (true, false) => "received",
            (false, true) => "sent",
            (false, false) => "no",
        }
    }
}

impl Bfd {
    fn cell(&self) -> Cell {
        let tone = if self.state == "Up" { Tone::Good } else { Tone::Bad };
        Cell::new(format!("{}: {} (isthmusctl bfd {})", self.state, self.reason, self.name), tone)
    }
}

impl GracefulRestart {
    fn words(&self) -> String {
        let agreed = match self.agreed {
            true => format!(
                "its routes are kept for {}: {}",
                text::milliseconds(self.time_ms),
                text::or_dash(&self.families.join(", "))
            ),
            false => String::new(),
        };
        let more = [
            (self.agreed && self.notification, "through a NOTIFICATION, too"),
            (self.restarting, "it has restarted"),
            (self.waiting, "this node has restarted and waits for it"),
        ];
        let more = more.into_iter().filter(|(so, _)| *so).map(|(_, words)| words.to_owned());
        let words = Some(agreed).filter(|agreed| !agreed.is_empty()).into_iter().chain(more);
        words.collect::<Vec<_>>().join("; ")
    }
}

impl LastError {
    fn words(&self, now: Moment) -> String {
        format!("{}; {} ago; up to {}", self.text, age(self.at, now), self.fault)
    }
}

impl Notification {
    fn words(&self) -> String {
        let by = if self.sent { "sent" } else { "received" };
        let data = if self.data.is_empty() { String::new() } else { format!(", data {}", self.data) };
        let decoded = self.decoded.as_ref().map(|decoded| format!(": {decoded}")).unwrap_or_default();
        format!("{by} {} ({}/{}){data}{decoded}", self.name, self.code, self.subcode)
    }
}

fn yes(so: bool) -> &'static str {
    if so { "yes" } else { "no" }
}
