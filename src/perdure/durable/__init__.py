"""The only writer of files: modes, durable append, publishing, locks, tail slots, crash points."""

from perdure.durable.appending import AppendFile
from perdure.durable.files import Folder
from perdure.durable.locks import Holder, Lock, holder
from perdure.durable.slots import Slot, TailSlots

__all__ = ["AppendFile", "Folder", "Holder", "Lock", "Slot", "TailSlots", "holder"]
