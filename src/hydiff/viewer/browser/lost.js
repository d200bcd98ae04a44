// The controls remain visible when the connection is lost, but have no effect: say so.
const notice = document.createElement("div")
notice.setAttribute("role", "alert")
notice.style = "position: fixed; inset: 0 0 auto 0; z-index: 1000; padding: 8px 12px;"
    + " background: #fff4e5; border-bottom: 4px solid #d55e00; font: 14px system-ui, sans-serif"
notice.textContent = "The viewer does not answer: what you do here has no effect."
    + " Start hydiff view again, and open the address that it prints."
document.body.append(notice)
