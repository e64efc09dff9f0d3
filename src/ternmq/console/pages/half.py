"""Transactions that have not ended: whose they are, how long they are open, ending one by hand."""

from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.ids import id_to_text

ROWS = 200


async def half_page(console: Console, asked: AskedUrl) -> ShownPage:
    admin = console.mq.admin.tolerant()
    opens = await admin.halves(limit=ROWS)
    facts = {
        "rows": [(id_to_text(int.from_bytes(one.transaction, "big")), one) for one in opens],
        "total": opens.total,
        "dropped": opens.dropped,
        "missing": admin.missing,
    }
    copy = CopyAs(
        cli=f"tern half list --url {console.url}",
        curl=curl_get(console.origin, "/half"),
        python="await mq.admin.halves()",
    )
    return ShownPage(
        template="half.html", title="Transactions", section="half", facts=facts, copy=copy
    )
