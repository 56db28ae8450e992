//! Modules are started once in a process, however many keys are opened with them, and never stopped: another key may be in use.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use cryptoki::{
    context::{CInitializeArgs, CInitializeFlags, Pkcs11},
    error::{Error as Pkcs11Error, RvError},
    session::{Session, UserType},
    slot::Slot,
    types::AuthPin,
};

use crate::{Error, uri::Uri};

static STARTED: Mutex<BTreeMap<PathBuf, Pkcs11>> = Mutex::new(BTreeMap::new());

/// A session of its own, logged in, with the one token that matches.
pub(crate) fn session(module: &Path, uri: &Uri, pin: &AuthPin) -> Result<Session, Error> {
    let context = start(module)?;
    let slot = slot(&context, uri)?;
    let session = context.open_rw_session(slot).map_err(|e| failed("open a session", &e))?;
    match session.login(UserType::User, Some(pin)) {
        // Of this process, by another key's session.
        Ok(()) | Err(Pkcs11Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(session),
        Err(Pkcs11Error::Pkcs11(
            e @ (RvError::PinIncorrect | RvError::PinLocked | RvError::PinLenRange | RvError::PinInvalid),
            _,
        )) => Err(Error::Pin(e.to_string())),
        Err(e) => Err(failed("log in", &e)),
    }
}

fn start(module: &Path) -> Result<Pkcs11, Error> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = started.get(module) {
        return Ok(context.clone());
    }
    let wrong = |e: Pkcs11Error| Error::Module { module: module.into(), reason: e.to_string() };
    let context = Pkcs11::new(module).map_err(wrong)?;
    match context.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Pkcs11Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(e) => return Err(wrong(e)),
    }
    started.insert(module.into(), context.clone());
    Ok(context)
}

fn slot(context: &Pkcs11, uri: &Uri) -> Result<Slot, Error> {
    let slots = context.get_slots_with_initialized_token().map_err(|e| failed("list tokens", &e))?;
    let mut matching = Vec::new();
    for slot in slots {
        let token = context.get_token_info(slot).map_err(|e| failed("describe itself", &e))?;
        if uri.matches(slot.id(), &token) {
            matching.push(slot);
        }
    }
    match matching.as_slice() {
        [slot] => Ok(*slot),
        _ => Err(Error::Tokens { count: matching.len(), uri: uri.clone() }),
    }
}

pub(crate) fn failed(what: &'static str, reason: &Pkcs11Error) -> Error {
    Error::Token { what, reason: reason.to_string() }
}
