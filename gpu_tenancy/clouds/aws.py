"""AWS, asked with the AWS CLI."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from gpu_tenancy.clouds.programs import DeniedError, NoAnswerError, NotFoundError, Run, not_logged_in

_DENIED: Final = re.compile(r"not authorized to perform: (\S+)")
_CODE: Final = re.compile(r"An error occurred \((\w+)\)")
_LOGIN: Final = ("Unable to locate credentials", "ExpiredToken", "sso session", "SSO session", "InvalidClientTokenId")


@dataclass(frozen=True)
class AwsCli:
    """The AWS CLI in one region."""

    run: Run
    region: str

    def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Runs one operation.

        Raises:
            DeniedError: the caller may not.
            NoAnswerError: AWS rejected it.
            ConsoleError: there is no program or no login.
        """
        given = ("--cli-input-json", json.dumps(parameters)) if parameters else ()
        done = self.run(("aws", service, operation, *given, "--region", self.region, "--output", "json"))
        if done.code == 0:
            return json.loads(done.stdout or "{}")
        message = " ".join(done.stderr.split())
        if any(word in message for word in _LOGIN):
            raise not_logged_in("aws", message)
        code = _CODE.search(message)
        if code and code[1] in {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}:
            right = _DENIED.search(message)
            raise DeniedError(right[1] if right else f"{service}:{operation.title().replace('-', '')}")
        missing = code and code[1] in {"NoSuchResourceException", "ResourceNotFoundException"}
        raise (NotFoundError if missing else NoAnswerError)(f"{code[1]}: {message}" if code else message)
