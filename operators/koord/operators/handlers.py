"""The Kopf handlers of one custom resource: validate an object, and enqueue it for its policy.

They run in Kopf's thread; ``hand_over`` calls a function in the main event loop. They are low-level
handlers: Kopf writes nothing to the objects of such, neither finalizers nor annotations. What is
made of an object is not known here.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from koord.controllers.status_author import StatusAuthor, Validation, Validator, is_said
from koord.isolation import Isolation

if TYPE_CHECKING:
    import kopf


class ResourceHandlers:
    """The handlers of the resource of one author."""

    def __init__(self, author: StatusAuthor[Any, Any], hand_over: Callable[..., object]) -> None:
        self.resource = author.resource
        self._author = author
        self._hand_over = hand_over
        self._validator = Validator(self.resource)
        self._handed: dict[str, tuple[object, Validation]] = {}
        """Object uid -> generation and verdict that were handed over last."""
        self._isolated = Isolation("validation")

    def register(self, registry: "kopf.OperatorRegistry") -> None:
        """Add the handlers to a registry for another start of Kopf, which then shows all objects.

        It does not show deletions that happened while it did not run.
        """
        # Imported late: that takes longer than reading a cluster, and planning need not wait.
        import kopf  # noqa: PLC0415

        names = self.resource.names
        kopf.on.startup(registry=registry, id=f"open-{names.plural}")(self.on_startup)
        kopf.on.cleanup(registry=registry, id=f"close-{names.plural}")(self.on_cleanup)
        watch = kopf.on.event(
            names.group, names.version, names.plural, registry=registry, id=names.plural
        )
        watch(self.on_event)

    async def on_startup(self, **_: Any) -> None:
        """Have the operator begin its work."""
        self._validator = Validator(self.resource)
        self._handed.clear()
        self._hand_over(self._author.open)

    async def on_cleanup(self, **_: Any) -> None:
        """Have the operator stop its work."""
        self._hand_over(self._author.close)

    async def on_event(self, event: Mapping[str, Any], body: Mapping[str, Any], **_: Any) -> None:
        """Validate an object; enqueue it if spec or verdict are new, or the verdict is not said."""
        meta = body["metadata"]
        name = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        self._isolated.call(name, self._look, event, body)

    def _look(self, event: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        uid = body["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._validator.forget(uid)
            self._handed.pop(uid, None)
            self._hand_over(self._author.forget, dict(body))
            return
        validation = self._validator.judge(body)
        seen = (body["metadata"].get("generation"), validation)
        is_unsaid = self._author.has_verdict and not is_said(body, validation)
        if self._handed.get(uid) != seen or is_unsaid:
            self._handed[uid] = seen
            self._hand_over(self._author.show, dict(body), validation)
